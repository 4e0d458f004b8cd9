import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

/**
 * What Java reaches on the same file: kafka-clients, CRC checked, four fields of each record read.
 *
 * <p>Rival FILE MODE: for each line "PASSES" on the standard input it makes so many passes in memory and prints the sum
 * over all records of offset + timestamp (ms) + key length + first byte of the value, of one pass. MODE: views, copies
 * (each key and value its own byte[]) or crc (batches only; the sum of sizes). One mode for each JVM, so that the
 * compiled code fits it.
 */
public final class Rival {
    static long views(MemoryRecords records) {
        long sum = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                ByteBuffer value = record.value();
                sum += record.offset() + record.timestamp() + record.key().remaining() + value.get(value.position());
            }
        }
        return sum;
    }

    static long copies(MemoryRecords records) {
        long sum = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                byte[] key = Utils.toArray(record.key());
                byte[] value = Utils.toArray(record.value());
                sum += record.offset() + record.timestamp() + key.length + value[0];
            }
        }
        return sum;
    }

    static long crc(MemoryRecords records) {
        long sum = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            sum += batch.sizeInBytes();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0]))));
        Passes.Pass pass = switch (arguments[1]) {
            case "views" -> () -> views(records);
            case "copies" -> () -> copies(records);
            case "crc" -> () -> crc(records);
            default -> throw new IllegalArgumentException("unknown mode " + arguments[1]);
        };
        Passes.serve(Passes.sumOf(pass));
    }
}
