import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** A consumer without other members: positions, seeks by offset and time, commits, resets, pauses. */
final class Reading {
    private static final String TOPIC = "read";
    private static final TopicPartition P0 = new TopicPartition(TOPIC, 0);
    private static final TopicPartition P1 = new TopicPartition(TOPIC, 1);
    private static final Duration POLL = Duration.ofMillis(300);
    private static final int RECORDS = 50;

    private Reading() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(admin, new NewTopic(TOPIC, 2, (short) 1));
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(servers.with())) {
            for (int n = 0; n < RECORDS; n++) {
                producer.send(new ProducerRecord<>(TOPIC, 0, Producing.T0 + 1000 * n, null, Producing.text("v" + n))).get();
            }
        }
        for (String protocol : List.of("classic", "consumer")) {
            String group = "reader-" + protocol;
            Properties properties = servers.with(
                    "group.id", group, "group.protocol", protocol, "max.poll.records", "5",
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false", "default.api.timeout.ms", "6000");
            try (KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties)) {
                positions(consumer, answers, protocol + ": ");
                commits(consumer, answers, protocol + ": ");
            }
            resets(servers, answers, protocol);
        }
        admin.deleteRecords(Map.of(P0, RecordsToDelete.beforeOffset(20))).all().get();
        for (String protocol : List.of("classic", "consumer")) {
            deleted(servers, answers, protocol);
        }
    }

    private static List<Long> polled(KafkaConsumer<byte[], byte[]> consumer) {
        List<Long> offsets = new ArrayList<>();
        for (int tries = 0; offsets.isEmpty() && tries < 30; tries++) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                offsets.add(record.offset());
            }
        }
        return offsets;
    }

    private static void positions(KafkaConsumer<byte[], byte[]> consumer, Answers answers, String by)
            throws InterruptedException {
        List<TopicPartition> both = List.of(P0, P1);
        consumer.assign(both);
        answers.ask(by + "positions at first", () -> consumer.position(P0) + " " + consumer.position(P1));
        answers.ask(by + "first", () -> polled(consumer));
        answers.ask(by + "lag", () -> consumer.currentLag(P0).isPresent());
        answers.ask(by + "begins and ends", () ->
                new TreeMap<>(Map.of("b", consumer.beginningOffsets(both).toString(), "e", consumer.endOffsets(both).toString())));
        for (long offset : new long[] {0, 1_500, 10_000, 48_999, 49_000, 49_001, 1_000_000}) {
            answers.ask(by + "offset for time " + offset, () -> {
                var found = consumer.offsetsForTimes(Map.of(P0, Producing.T0 + offset)).get(P0);
                if (found == null) {
                    return null;
                }
                consumer.seek(P0, found.offset());
                return found.offset() + " " + (found.timestamp() - Producing.T0) + " " + found.leaderEpoch() + " " + polled(consumer);
            });
        }
        answers.ask(by + "seek to the end", () -> {
            consumer.seekToEnd(List.of(P0));
            return consumer.position(P0);
        });
        answers.ask(by + "seek too far", () -> {
            consumer.seek(P0, 1_000);
            return polled(consumer);
        });
        answers.ask(by + "seek with a newer epoch", () -> {
            consumer.seek(P0, new OffsetAndMetadata(7, java.util.Optional.of(0), ""));
            return polled(consumer);
        });
        answers.ask(by + "paused", () -> {
            consumer.seekToBeginning(both);
            consumer.pause(List.of(P0));
            int count = consumer.poll(POLL).count() + consumer.poll(POLL).count();
            consumer.resume(List.of(P0));
            return count + " " + polled(consumer);
        });
        answers.ask(by + "partitions", () -> consumer.partitionsFor(TOPIC).stream().map(PartitionInfo::toString)
                .map(one -> one.replaceAll("\\d+ \\(.*?\\)", "node"))
                .sorted()
                .toList());
        answers.ask(by + "partitions of no topic", () -> consumer.partitionsFor("no-such"));
        answers.ask(by + "topics", () -> consumer.listTopics().containsKey(TOPIC));
        answers.ask(by + "ends of no topic", () ->
                consumer.endOffsets(List.of(new TopicPartition("no-such", 0)), Duration.ofSeconds(2)));
    }

    private static void commits(KafkaConsumer<byte[], byte[]> consumer, Answers answers, String by)
            throws InterruptedException {
        answers.ask(by + "committed at first", () -> consumer.committed(java.util.Set.of(P0, P1)).toString());
        answers.ask(by + "commit", () -> {
            consumer.commitSync(Map.of(P0, new OffsetAndMetadata(12, java.util.Optional.of(0), "mine"),
                    P1, new OffsetAndMetadata(0)));
            return consumer.committed(java.util.Set.of(P0, P1)).toString();
        });
        answers.ask(by + "commit with too much metadata", () -> {
            consumer.commitSync(Map.of(P0, new OffsetAndMetadata(12, "x".repeat(5_000))));
            return "taken";
        });
        answers.ask(by + "commit of no topic", () -> {
            consumer.commitSync(Map.of(new TopicPartition("no-such", 0), new OffsetAndMetadata(12)), Duration.ofSeconds(3));
            return "taken";
        });
        answers.ask(by + "commit of no partition", () -> {
            consumer.commitSync(Map.of(new TopicPartition(TOPIC, 9), new OffsetAndMetadata(12)), Duration.ofSeconds(3));
            return "taken";
        });
        answers.ask(by + "commit beyond the end", () -> {
            consumer.commitSync(Map.of(P1, new OffsetAndMetadata(777)));
            return consumer.committed(java.util.Set.of(P1)).toString();
        });
        answers.ask(by + "commit again", () -> {
            consumer.commitSync(Map.of(P0, new OffsetAndMetadata(12), P1, new OffsetAndMetadata(0)));
            return "taken";
        });
    }

    private static void resets(JavaClients.Servers servers, Answers answers, String protocol) throws Exception {
        for (String reset : List.of("earliest", "latest", "none", "by_duration:P1D")) {
            Properties properties = servers.with(
                    "group.id", "resets-" + reset.replace(':', '-') + protocol, "group.protocol", protocol,
                    "max.poll.records", "3", "auto.offset.reset", reset, "enable.auto.commit", "false");
            try (KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties)) {
                consumer.assign(List.of(P0));
                answers.ask(protocol + ": reset to " + reset, () -> {
                    consumer.poll(POLL);
                    return consumer.position(P0);
                });
            }
        }
        Properties properties = servers.with(
                "group.id", "reader-" + protocol, "group.protocol", protocol, "max.poll.records", "3",
                "auto.offset.reset", "none", "enable.auto.commit", "true");
        try (KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties)) {
            consumer.subscribe(List.of(TOPIC));
            answers.ask(protocol + ": goes on where it committed", () -> polled(consumer));
        }
        try (Admin admin = Admin.create(servers.with())) {
            answers.ask(protocol + ": committed when it was closed", () ->
                    admin.listConsumerGroupOffsets("reader-" + protocol).partitionsToOffsetAndMetadata().get().get(P0).offset());
        }
    }

    private static void deleted(JavaClients.Servers servers, Answers answers, String protocol) throws Exception {
        for (String reset : List.of("earliest", "latest", "none")) {
            Properties properties = servers.with(
                    "group.protocol", protocol, "max.poll.records", "3", "auto.offset.reset", reset,
                    "group.id", "deleted-" + reset + protocol);
            try (KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties)) {
                consumer.assign(List.of(P0));
                answers.ask(protocol + ": deleted records, reset to " + reset, () -> {
                    consumer.seek(P0, 3);
                    List<Long> found = new ArrayList<>();
                    for (int tries = 0; tries < 6 && found.isEmpty(); tries++) {
                        consumer.poll(POLL).forEach(one -> found.add(one.offset()));
                    }
                    return found + " " + consumer.position(P0);
                });
            }
        }
    }
}
