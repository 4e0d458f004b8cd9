import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.Utils;

/**
 * What Java reaches on the same file: kafka-clients, CRC checked, four fields of each record read.
 *
 * <p>Rival FILE MODE: for each line "PASSES" on the standard input it makes so many passes and prints the sum over all records of offset + timestamp (ms) + key length + first byte of the value, of one pass. MODE: views, copies
 * (each key and value its own byte[]) or crc (batches only; the sum of sizes); with "file " before it each
 * pass reads the file, else it is in memory from the start. One mode for each JVM, so
 * that the compiled code fits it.
 */
public final class Rival {
    static final int CHUNK_BYTES = 1 << 20;
    static final int LENGTH_AT = 8;
    static final int OVERHEAD = 12;

    static long views(Records records) {
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

    static long copies(Records records) {
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

    static long crc(Records records) {
        long sum = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            sum += batch.sizeInBytes();
        }
        return sum;
    }

    /** Reads a file in chunks into one buffer, and takes the whole batches of each. */
    static long ofFile(Path path, ByteBuffer chunk, ToLongFunction<Records> sumOf) throws IOException {
        long sum = 0;
        try (FileChannel channel = FileChannel.open(path)) {
            for (long position = 0, size = channel.size(); position < size;) {
                chunk.clear();
                while (chunk.hasRemaining() && channel.read(chunk, position + chunk.position()) > 0) {}
                int whole = 0;
                for (int end = 0; end <= chunk.position();) {
                    whole = end;
                    end = whole + OVERHEAD > chunk.position() ? Integer.MAX_VALUE
                        : whole + OVERHEAD + chunk.getInt(whole + LENGTH_AT);
                }
                if (whole == 0) throw new IOException("no whole batch at " + position);
                sum += sumOf.applyAsLong(MemoryRecords.readableRecords(chunk.slice(0, whole)));
                position += whole;
            }
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(arguments[0]);
        String[] mode = arguments[1].split(" ");
        ToLongFunction<Records> sumOf = switch (mode[mode.length - 1]) {
            case "views" -> Rival::views;
            case "copies" -> Rival::copies;
            case "crc" -> Rival::crc;
            default -> throw new IllegalArgumentException("unknown mode " + arguments[1]);
        };
        Passes.Pass pass = switch (mode.length == 1 ? "memory" : mode[0]) {
            case "memory" -> {
                Records records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(path)));
                yield () -> sumOf.applyAsLong(records);
            }
            case "file" -> {
                ByteBuffer chunk = ByteBuffer.allocate(CHUNK_BYTES);
                yield () -> ofFile(path, chunk, sumOf);
            }
            default -> throw new IllegalArgumentException("unknown mode " + arguments[1]);
        };
        Passes.serve(Passes.sumOf(pass));
    }
}
