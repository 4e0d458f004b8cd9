import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Kafka 3.8 and later: reads all formats; up to 3.9 it writes them all too. */
final class KafkaClient implements Interop.Client {
    private static final int FIRST_CAPACITY_BYTES = 1024;

    @Override
    public void read(String caseName, ByteBuffer data, Report report) {
        MemoryRecords records = MemoryRecords.readableRecords(data);
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            batch(caseName, batch, report);
            for (Record record : batch) {
                record.ensureValid();
                record(caseName, batch, record, report);
            }
        }
        report.begin(caseName).put("valid_bytes", records.validBytes()).end();
    }

    private static void batch(String caseName, RecordBatch batch, Report report) {
        report.begin(caseName)
                .put("magic", batch.magic())
                .put("base_offset", batch.baseOffset())
                .put("last_offset", batch.lastOffset())
                .put("codec", batch.compressionType().id)
                .put("batch_timestamp_type", batch.timestampType())
                .put("max_timestamp_ms", batch.maxTimestamp())
                .put("producer_id", batch.producerId())
                .put("producer_epoch", batch.producerEpoch())
                .put("base_sequence", batch.baseSequence())
                .put("is_transactional", batch.isTransactional())
                .put("is_control", batch.isControlBatch())
                .put("partition_leader_epoch", batch.partitionLeaderEpoch())
                .put("delete_horizon_ms", batch.deleteHorizonMs().orElse(-1))
                .put("size_in_bytes", batch.sizeInBytes())
                .end();
    }

    private static void record(String caseName, RecordBatch batch, Record record, Report report) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
            headers.append(headers.length() == 0 ? "" : ",")
                    .append('[')
                    .append(report.hash(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))))
                    .append(',')
                    .append(report.hash(value))
                    .append(']');
        }
        report.begin(caseName)
                .put("offset", record.offset())
                .put("timestamp_ms", record.timestamp())
                .put("timestamp_type", timestampType(batch, record))
                .putHash("key", record.key())
                .putHash("value", record.value())
                .raw("headers", "[" + headers + "]")
                .put("sequence", record.sequence())
                .end();
    }

    /** A V0 message in a V1 wrapper has its own; a record of V2 has that of its batch. */
    private static TimestampType timestampType(RecordBatch batch, Record record) {
        for (TimestampType type : TimestampType.values()) {
            if (record.hasTimestampType(type)) {
                return type;
            }
        }
        return batch.timestampType();
    }

    @Override
    public ByteBuffer write(Recipe recipe) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(FIRST_CAPACITY_BYTES),
                recipe.magic(),
                Compression.of(CompressionType.forId(recipe.codec())).build(),
                timestampType(recipe),
                recipe.baseOffset(),
                recipe.logAppendTimeMs(),
                recipe.producerId(),
                recipe.producerEpoch(),
                recipe.baseSequence(),
                recipe.isTransactional(),
                recipe.isControl(),
                recipe.partitionLeaderEpoch(),
                FIRST_CAPACITY_BYTES,
                recipe.deleteHorizonMs());
        for (Recipe.Row row : recipe.rows()) {
            SimpleRecord record = new SimpleRecord(row.timestampMs(), row.key(), row.value(), headers(row));
            if (recipe.isControl()) {
                builder.appendControlRecordWithOffset(row.offset(), record);
            } else {
                builder.appendWithOffset(row.offset(), record);
            }
        }
        return builder.build().buffer();
    }

    private static TimestampType timestampType(Recipe recipe) {
        if (recipe.magic() == RecordBatch.MAGIC_VALUE_V0) {
            return TimestampType.NO_TIMESTAMP_TYPE;
        }
        return recipe.isLogAppendTime() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    }

    private static Header[] headers(Recipe.Row row) {
        return row.headers().stream()
                .map(field -> new RecordHeader(new String(field.key(), StandardCharsets.UTF_8), field.value()))
                .toArray(Header[]::new);
    }
}
