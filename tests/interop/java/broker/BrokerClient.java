import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Asks a broker what the lines of standard input say, fields parted by tabs, and answers each with JSON lines of which
 * the last has the case "done". Its argument is the broker's address.
 *
 * <p>create TOPIC PARTITIONS NAME=VALUE... | delete TOPIC | consume TOPIC PARTITION ISOLATION | offsets TOPIC PARTITION
 * ISOLATION TIME... | produce TOPIC PARTITION CODEC COUNT plain|commit|abort [KEYS VALUE_BYTES [LABEL FIRST]] | group TOPIC
 * PARTITION GROUP PROTOCOL COUNT close|leave | committed TOPIC PARTITION GROUP | transact TOPIC PARTITION GROUP OFFSET
 * commit|abort | forget TOPIC PARTITION GROUP; and what AdminAnswers has
 *
 * <p>A group polls up to COUNT records and commits; its member closes, or is left without a word.
 *
 * <p>With a label, each value repeats the label and a number that counts from FIRST; it is an error if the broker does
 * not give each record that number as its offset.
 */
public final class BrokerClient {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_NANOS = Duration.ofSeconds(60).toNanos();

    private final Properties properties = new Properties();
    private final Admin admin;
    private final Report report;
    private final List<KafkaConsumer<byte[], byte[]>> left = new ArrayList<>();

    private BrokerClient(String address, PrintStream output) throws NoSuchAlgorithmException {
        properties.put("bootstrap.servers", address);
        admin = Admin.create(properties);
        report = new Report(output);
    }

    public static void main(String[] arguments) throws IOException, NoSuchAlgorithmException {
        PrintStream output = new PrintStream(System.out, false);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BrokerClient client = new BrokerClient(arguments[0], output);
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                client.run(line.split("\t"));
            } catch (RuntimeException | ExecutionException | InterruptedException failure) {
                client.report.begin("error").putText("error", failure.toString()).end();
            }
            client.report.begin("done").end();
            output.flush();
        }
        client.admin.close();
    }

    private void run(String[] fields) throws ExecutionException, InterruptedException {
        if (fields[0].equals("create")) {
            create(fields);
            return;
        }
        if (fields[0].equals("delete")) {
            admin.deleteTopics(List.of(fields[1])).all().get();
            return;
        }
        if (AdminAnswers.knows(fields[0])) {
            new AdminAnswers(admin, report).run(fields);
            return;
        }
        TopicPartition partition = new TopicPartition(fields[1], Integer.parseInt(fields[2]));
        switch (fields[0]) {
            case "consume" -> consume(partition, fields[3]);
            case "offsets" -> offsets(partition, fields);
            case "group" -> group(partition, fields[3], fields[4], Integer.parseInt(fields[5]), fields[6].equals("leave"));
            case "committed" -> committed(partition, fields[3]);
            case "transact" -> transact(partition, fields[3], Long.parseLong(fields[4]), fields[5].equals("commit"));
            case "forget" -> admin.deleteConsumerGroups(List.of(fields[3])).all().get();
            default -> produce(
                    partition,
                    fields[3],
                    Integer.parseInt(fields[4]),
                    fields[5],
                    fields.length > 6 ? Integer.parseInt(fields[6]) : 0,
                    fields.length > 7 ? Integer.parseInt(fields[7]) : 0,
                    fields.length > 8 ? fields[8] : "",
                    fields.length > 9 ? Long.parseLong(fields[9]) : 0);
        }
    }

    private void create(String[] fields) throws ExecutionException, InterruptedException {
        Map<String, String> configs = new HashMap<>();
        for (int i = 3; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        NewTopic topic = new NewTopic(fields[1], Integer.parseInt(fields[2]), (short) 1).configs(configs);
        String id = admin.createTopics(List.of(topic)).topicId(fields[1]).get().toString();
        report.begin("topic").putText("topic_id", id).end();
    }

    private void consume(TopicPartition partition, String isolation) {
        Properties consumer = new Properties();
        consumer.putAll(properties);
        consumer.put("isolation.level", isolation);
        consumer.put("check.crcs", "true");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> records = new KafkaConsumer<>(consumer, bytes, bytes)) {
            records.assign(List.of(partition));
            records.seekToBeginning(List.of(partition));
            long end = records.endOffsets(List.of(partition)).get(partition);
            long started = System.nanoTime();
            while (records.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : records.poll(POLL)) {
                    record(record);
                }
                if (System.nanoTime() - started > PATIENCE_NANOS) {
                    throw new IllegalStateException("stands at " + records.position(partition) + " of " + end);
                }
            }
            report.begin("end").put("end", end).end();
        }
    }

    private void group(TopicPartition partition, String group, String protocol, int count, boolean leaves) {
        Properties consumer = new Properties();
        consumer.putAll(properties);
        consumer.put("group.id", group);
        consumer.put("group.protocol", protocol);
        consumer.put("auto.offset.reset", "earliest");
        consumer.put("enable.auto.commit", "false");
        consumer.put("max.poll.records", "1");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> records = new KafkaConsumer<>(consumer, bytes, bytes);
        records.subscribe(List.of(partition.topic()));
        long first = -1;
        long started = System.nanoTime();
        for (int found = 0; found < count; ) {
            for (ConsumerRecord<byte[], byte[]> record : records.poll(POLL)) {
                first = found == 0 ? record.offset() : first;
                found++;
            }
            if (System.nanoTime() - started > PATIENCE_NANOS) {
                throw new IllegalStateException("got " + found + " of " + count);
            }
        }
        records.commitSync();
        report.begin("group").put("first", first).put("position", records.position(partition)).end();
        if (leaves) {
            left.add(records);
        } else {
            records.close();
        }
    }

    private void committed(TopicPartition partition, String group) throws ExecutionException, InterruptedException {
        OffsetAndMetadata found = admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata()
                .get()
                .get(partition);
        report.begin("committed")
                .put("offset", found == null ? -1 : found.offset())
                .putText("metadata", found == null ? "" : found.metadata())
                .end();
    }

    private void transact(TopicPartition partition, String group, long offset, boolean commits) {
        Properties producer = new Properties();
        producer.putAll(properties);
        producer.put("transactional.id", "transact-" + group);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> records = new KafkaProducer<>(producer, bytes, bytes)) {
            records.initTransactions();
            records.beginTransaction();
            records.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(offset)), new ConsumerGroupMetadata(group));
            if (commits) {
                records.commitTransaction();
            } else {
                records.abortTransaction();
            }
        }
    }

    private void record(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.length() == 0 ? "" : ",")
                    .append('[')
                    .append(hash(header.key().getBytes(StandardCharsets.UTF_8)))
                    .append(',')
                    .append(hash(header.value()))
                    .append(']');
        }
        report.begin("record")
                .put("offset", record.offset())
                .put("timestamp_ms", record.timestamp())
                .put("timestamp_type", record.timestampType())
                .raw("key", hash(record.key()))
                .raw("value", hash(record.value()))
                .raw("headers", "[" + headers + "]")
                .end();
    }

    private String hash(byte[] data) {
        return report.hash(data == null ? null : ByteBuffer.wrap(data));
    }

    private void offsets(TopicPartition partition, String[] fields) throws ExecutionException, InterruptedException {
        IsolationLevel isolation = IsolationLevel.valueOf(fields[3].toUpperCase());
        for (int i = 4; i < fields.length; i++) {
            OffsetSpec spec = switch (fields[i]) {
                case "-1" -> OffsetSpec.latest();
                case "-2" -> OffsetSpec.earliest();
                case "-3" -> OffsetSpec.maxTimestamp();
                default -> OffsetSpec.forTimestamp(Long.parseLong(fields[i]));
            };
            ListOffsetsResultInfo answer = admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation))
                    .partitionResult(partition)
                    .get();
            report.begin("offset")
                    .raw("query", fields[i])
                    .put("offset", answer.offset())
                    .put("timestamp_ms", answer.timestamp())
                    .put("leader_epoch", answer.leaderEpoch().orElse(-1))
                    .end();
        }
    }

    private void produce(
            TopicPartition partition,
            String codec,
            int count,
            String mode,
            int keys,
            int leastBytes,
            String label,
            long first)
            throws ExecutionException, InterruptedException {
        Properties producer = new Properties();
        producer.putAll(properties);
        producer.put("compression.type", codec);
        // A producer of a topic that was just created again may never learn of it.
        producer.put("request.timeout.ms", "10000");
        producer.put("delivery.timeout.ms", "20000");
        if (!mode.equals("plain")) {
            producer.put("transactional.id", "broker-" + partition);
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> records = new KafkaProducer<>(producer, bytes, bytes)) {
            if (!mode.equals("plain")) {
                records.initTransactions();
                records.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                byte[] value = label.isEmpty() ? padded(n, leastBytes) : repeated(label, first + n, leastBytes);
                byte[] key = keys == 0 ? null : Integer.toString(n % keys).getBytes(StandardCharsets.UTF_8);
                sent.add(records.send(new ProducerRecord<>(partition.topic(), partition.partition(), key, value)));
            }
            records.flush();
            for (int n = 0; n < count && !label.isEmpty(); n++) {
                if (sent.get(n).get().offset() != first + n) {
                    throw new IllegalStateException("record " + (first + n) + " is at " + sent.get(n).get().offset());
                }
            }
            long lastOffset = sent.get(count - 1).get().offset();
            report.begin("produced").put("last_offset", lastOffset).end();
            if (mode.equals("commit")) {
                records.commitTransaction();
            } else if (mode.equals("abort")) {
                records.abortTransaction();
            }
            waitForEnd(partition, lastOffset + (mode.equals("plain") ? 1 : 2));
        }
    }

    private static byte[] padded(int number, int leastBytes) {
        byte[] text = ("from the broker " + number).getBytes(StandardCharsets.UTF_8);
        return Arrays.copyOf(text, Math.max(text.length, leastBytes));
    }

    private static byte[] repeated(String label, long number, int bytes) {
        byte[] text = (label + " " + number + " ").getBytes(StandardCharsets.UTF_8);
        byte[] value = new byte[bytes];
        for (int at = 0; at < bytes; at++) {
            value[at] = text[at % text.length];
        }
        return value;
    }

    /** Wait for the marker of a transaction, which the broker writes behind its answer. */
    private void waitForEnd(TopicPartition partition, long end) throws ExecutionException, InterruptedException {
        long started = System.nanoTime();
        while (admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset() < end) {
            if (System.nanoTime() - started > PATIENCE_NANOS) {
                throw new IllegalStateException("the log does not end at " + end);
            }
        }
    }
}
