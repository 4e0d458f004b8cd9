import java.nio.ByteBuffer;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.LogEntry;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;

/** The client of Kafka 0.10.0: reads V0 and V1, writes V1 as a producer does, CreateTime and offsets from 0. */
final class KafkaClient implements Interop.Client {
    private static final int FIRST_CAPACITY_BYTES = 1024;

    @Override
    public void read(String caseName, ByteBuffer data, Report report) {
        for (LogEntry entry : MemoryRecords.readableRecords(data)) {
            Record record = entry.record();
            record.ensureValid();
            report.begin(caseName)
                    .put("offset", entry.offset())
                    .put("timestamp_ms", record.timestamp())
                    .put("timestamp_type", record.timestampType())
                    .putHash("key", record.key())
                    .putHash("value", record.value())
                    .end();
        }
    }

    @Override
    public ByteBuffer write(Recipe recipe) {
        ByteBuffer buffer = ByteBuffer.allocate(FIRST_CAPACITY_BYTES);
        MemoryRecords records = MemoryRecords.emptyRecords(buffer, CompressionType.forId(recipe.codec()));
        for (Recipe.Row row : recipe.rows()) {
            records.append(row.offset(), row.timestampMs(), row.key(), row.value());
        }
        records.close();
        return records.buffer();
    }
}
