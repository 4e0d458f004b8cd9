import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Records of all kinds, and those that a server refuses. */
final class Producing {
    static final long T0 = 1_700_000_000_000L;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final int RECORDS = 40;
    private static final Duration POLL = Duration.ofMillis(200);

    private Producing() {}

    static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static KafkaProducer<byte[], byte[]> producer(Properties properties) {
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties properties) {
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        for (String codec : CODECS) {
            for (String acks : List.of("0", "1", "all")) {
                String topic = "records-" + codec + "-" + acks;
                TopicQuestions.make(admin, new NewTopic(topic, 3, (short) 1));
                // Which waits until the broker has the partitions: without an answer, records would be lost before.
                ends(admin, topic);
                write(servers, answers, topic, codec, acks);
                // Without an answer, records may come after the producer was closed.
                Answers.await("all records", () -> ends(admin, topic) == RECORDS);
                answers.say("records " + codec + " acks " + acks, read(servers, topic, "read_uncommitted"));
            }
        }
        stored(servers, admin, answers);
        refused(servers, admin, answers);
    }

    private static long ends(Admin admin, String topic) {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (int partition = 0; partition < 3; partition++) {
            latest.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        }
        try {
            return admin.listOffsets(latest).all().get().values().stream().mapToLong(one -> one.offset()).sum();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static void write(
            JavaClients.Servers servers, Answers answers, String topic, String codec, String acks) throws Exception {
        Properties properties = servers.with("compression.type", codec, "acks", acks, "linger.ms", "5");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(properties)) {
            for (int n = 0; n < RECORDS; n++) {
                byte[] key = n % 4 == 0 ? null : text("key-" + n % 7);
                byte[] value = n % 9 == 0 ? null : text(("value " + n + " ").repeat(n % 5 == 0 ? 300 : 1));
                Integer partition = key == null ? (Integer) (n % 3) : null;
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, T0 + n, key, value);
                for (int header = 0; header < n % 3; header++) {
                    record.headers().add("name-" + header, header == 1 ? null : text("of " + n));
                }
                sent.add(producer.send(record));
            }
        }
        List<String> places = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata place = one.get();
            places.add(place.partition() + ":" + place.offset() + ":" + place.timestamp());
        }
        answers.say("places " + codec + " acks " + acks, places);
    }

    /** All records of a topic, by partition and offset. */
    static List<Object> read(JavaClients.Servers servers, String topic, String isolation) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(servers.with("isolation.level", isolation))) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(one -> new TopicPartition(topic, one.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long started = System.currentTimeMillis();
            while (!partitions.stream().allMatch(one -> consumer.position(one) >= ends.get(one))) {
                consumer.poll(POLL).forEach(found::add);
                if (System.currentTimeMillis() - started > 60_000) {
                    throw new IllegalStateException("no end of " + topic + " " + ends);
                }
            }
        }
        found.sort(Comparator.comparingInt((ConsumerRecord<byte[], byte[]> one) -> one.partition())
                .thenComparingLong(ConsumerRecord::offset));
        return found.stream().map(Producing::shown).toList();
    }

    static Object shown(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(' ').append(header.key()).append('=').append(Answers.crc(header.value()));
        }
        return record.partition() + ":" + record.offset() + " " + record.timestampType() + " "
                + (record.timestampType().id == 0 ? record.timestamp() : "now") + " " + Answers.crc(record.key()) + " "
                + Answers.crc(record.value()) + headers;
    }

    /** Topics whose settings change what is stored. */
    private static void stored(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        for (Map.Entry<String, Map<String, String>> one : Map.of(
                        "recompressed", Map.of("compression.type", "zstd"),
                        "uncompressed", Map.of("compression.type", "uncompressed"),
                        "append-time", Map.of("message.timestamp.type", "LogAppendTime"))
                .entrySet()) {
            TopicQuestions.make(admin, new NewTopic(one.getKey(), 1, (short) 1).configs(one.getValue()));
            try (KafkaProducer<byte[], byte[]> producer = producer(servers.with("compression.type", "lz4"))) {
                for (int n = 0; n < 5; n++) {
                    RecordMetadata place = producer.send(
                                    new ProducerRecord<>(one.getKey(), 0, T0 + n, text("k"), text("v" + n)))
                            .get();
                    answers.say(one.getKey() + " " + n, place.offset() + " " + (place.timestamp() == T0 + n));
                }
            }
            answers.say("records " + one.getKey(), read(servers, one.getKey(), "read_uncommitted"));
        }
    }

    private static void refused(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(
                admin,
                new NewTopic("small", 1, (short) 1).configs(Map.of("max.message.bytes", "1000")),
                new NewTopic("compacted", 1, (short) 1).configs(Map.of("cleanup.policy", "compact")),
                new NewTopic("timely", 1, (short) 1).configs(Map.of(
                        "message.timestamp.before.max.ms", "1000", "message.timestamp.after.max.ms", "1000")));
        long now = System.currentTimeMillis();
        long hour = 3_600_000;
        record Wrong(String what, ProducerRecord<byte[], byte[]> record) {}
        List<Wrong> wrong = List.of(
                new Wrong("too large for the topic", new ProducerRecord<>("small", text("x".repeat(2_000)))),
                new Wrong("too large for the node", new ProducerRecord<>("records-none-1", text("x".repeat(1_200_000)))),
                new Wrong("without a key", new ProducerRecord<>("compacted", text("x"))),
                new Wrong("too old", new ProducerRecord<>("timely", 0, now - hour, null, text("x"))),
                new Wrong("too new", new ProducerRecord<>("timely", 0, now + hour, null, text("x"))),
                new Wrong("two hours ahead", new ProducerRecord<>("small", 0, now + 2 * hour, null, text("x"))),
                new Wrong("in time", new ProducerRecord<>("timely", 0, now, null, text("x"))),
                new Wrong("to no partition", new ProducerRecord<>("small", 7, null, text("x"))),
                new Wrong("to no topic", new ProducerRecord<>("no-such", text("x"))),
                new Wrong("to a bad name", new ProducerRecord<>("a b", text("x"))),
                new Wrong("to an internal topic", new ProducerRecord<>("__consumer_offsets", text("x"))));
        for (String idempotent : List.of("true", "false")) {
            Properties properties = servers.with(
                    "enable.idempotence", idempotent, "max.block.ms", "3000", "max.request.size", "10000000",
                    "delivery.timeout.ms", "9000", "request.timeout.ms", "8000");
            for (Wrong one : wrong) {
                try (KafkaProducer<byte[], byte[]> producer = producer(properties)) {
                    answers.ask("a record " + one.what() + ", idempotence " + idempotent, () -> {
                        producer.send(one.record()).get();
                        return "taken";
                    });
                }
            }
        }
    }
}
