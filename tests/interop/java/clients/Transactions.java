import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions: committed, aborted, fenced, timed out, with offsets of groups, and as the admin client sees them. */
final class Transactions {
    private static final String TOPIC = "transacted";
    private static final TopicPartition P0 = new TopicPartition(TOPIC, 0);
    private static final TopicPartition P1 = new TopicPartition(TOPIC, 1);

    private Transactions() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(admin, new NewTopic(TOPIC, 2, (short) 1));
        ended(servers, admin, answers);
        open(servers, admin, answers);
        fenced(servers, answers);
        offsets(servers, admin, answers);
        timedOut(servers, admin, answers);
        wrong(servers, answers);
        answers.say("committed records", Producing.read(servers, TOPIC, "read_committed"));
        answers.say("all records", Producing.read(servers, TOPIC, "read_uncommitted"));
        abortedByOperator(servers, admin, answers);
        answers.ask("transactions at the end", () -> listed(admin, new ListTransactionsOptions()));
    }

    private static Properties transactional(JavaClients.Servers servers, String id) {
        return servers.with("transactional.id", id, "linger.ms", "0", "max.block.ms", "30000", "compression.type", "lz4");
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, int partition, String value) throws Exception {
        producer.send(new ProducerRecord<>(TOPIC, partition, Producing.T0, null, Producing.text(value))).get();
    }

    private static void ended(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(transactional(servers, "ended"))) {
            producer.initTransactions();
            for (int n = 0; n < 6; n++) {
                producer.beginTransaction();
                for (int record = 0; record <= n; record++) {
                    send(producer, record % 2, "transaction " + n + " record " + record);
                }
                if (n % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        settled(admin, "ended");
        answers.ask("ended: described", () -> described(admin, "ended"));
        answers.ask("ended: producers", () -> producers(admin, P0));
    }

    /** Wait until a broker has written all markers of a transaction. */
    static void settled(Admin admin, String id) throws InterruptedException {
        Answers.await(id + " is settled", () -> {
            TransactionState state = stateOf(admin, id);
            return state != TransactionState.PREPARE_ABORT && state != TransactionState.PREPARE_COMMIT;
        });
    }

    private static TransactionState stateOf(Admin admin, String id) {
        try {
            return admin.describeTransactions(List.of(id)).description(id).get().state();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    static Object described(Admin admin, String id) throws Exception {
        var found = admin.describeTransactions(List.of(id)).description(id).get();
        return Answers.fields(
                "state", found.state(),
                "epoch", found.producerEpoch(),
                "timeout", found.transactionTimeoutMs(),
                "has_start", found.transactionStartTimeMs().isPresent(),
                "partitions", found.topicPartitions().stream().map(TopicPartition::toString).sorted().toList(),
                "coordinator", found.coordinatorId());
    }

    static Object producers(Admin admin, TopicPartition partition) throws Exception {
        List<String> found = new ArrayList<>();
        for (ProducerState one : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            found.add(Answers.fields(
                            "epoch", one.producerEpoch(),
                            "sequence", one.lastSequence(),
                            "has_coordinator_epoch", one.coordinatorEpoch().orElse(-1) >= 0,
                            "start", one.currentTransactionStartOffset().orElse(-1))
                    .toString());
        }
        return found.stream().sorted().toList();
    }

    private static Object listed(Admin admin, ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream()
                .map(one -> one.transactionalId() + " " + one.state())
                .sorted()
                .toList();
    }

    private static void open(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        KafkaProducer<byte[], byte[]> producer = Producing.producer(transactional(servers, "open"));
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, 0, "open 0");
        send(producer, 1, "open 1");
        answers.ask("open: described", () -> described(admin, "open"));
        answers.ask("open: producers", () -> producers(admin, P0));
        answers.ask("open: listed", () -> listed(admin, new ListTransactionsOptions()));
        answers.ask("open: listed by state", () ->
                listed(admin, new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))));
        answers.ask("open: listed by time", () -> listed(admin, new ListTransactionsOptions().filterOnDuration(3_600_000)));
        answers.ask("open: listed by pattern", () ->
                listed(admin, new ListTransactionsOptions().filterOnTransactionalIdPattern("op.*")));
        try (KafkaConsumer<byte[], byte[]> consumer =
                Producing.consumer(servers.with("isolation.level", "read_committed"))) {
            answers.ask("open: last stable offsets", () -> consumer.endOffsets(List.of(P0, P1)).toString());
        }
        answers.ask("open: fenced as an operator", () -> {
            admin.fenceProducers(List.of("open")).all().get();
            settled(admin, "open");
            return described(admin, "open");
        });
        answers.ask("open: commit after that", () -> {
            producer.commitTransaction();
            return "committed";
        });
        producer.close(Duration.ZERO);
    }

    private static void abortedByOperator(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        KafkaProducer<byte[], byte[]> producer = Producing.producer(transactional(servers, "hanging"));
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, 0, "hanging");
        answers.ask("abort as an operator", () -> {
            ProducerState found = admin.describeProducers(List.of(P0)).partitionResult(P0).get().activeProducers().stream()
                    .filter(one -> one.currentTransactionStartOffset().isPresent())
                    .findFirst()
                    .orElseThrow();
            AbortTransactionSpec spec = new AbortTransactionSpec(
                    P0, found.producerId(), (short) found.producerEpoch(), found.coordinatorEpoch().orElse(0));
            admin.abortTransaction(spec).all().get();
            return "aborted";
        });
        producer.close(Duration.ZERO);
    }

    private static void fenced(JavaClients.Servers servers, Answers answers) throws Exception {
        for (boolean isOpen : new boolean[] {false, true}) {
            String of = isOpen ? "fenced in a transaction: " : "fenced: ";
            String id = isOpen ? "fenced-open" : "fenced";
            KafkaProducer<byte[], byte[]> older = Producing.producer(transactional(servers, id));
            older.initTransactions();
            older.beginTransaction();
            if (isOpen) {
                send(older, 0, of + "older");
            }
            try (KafkaProducer<byte[], byte[]> newer = Producing.producer(transactional(servers, id))) {
                answers.ask(of + "the newer begins", () -> {
                    newer.initTransactions();
                    newer.beginTransaction();
                    send(newer, 0, of + "newer");
                    newer.commitTransaction();
                    return "committed";
                });
                answers.ask(of + "the older sends", () -> {
                    send(older, 0, of + "older again");
                    return "sent";
                });
                answers.ask(of + "the older commits", () -> {
                    older.commitTransaction();
                    return "committed";
                });
                answers.ask(of + "the older aborts", () -> {
                    older.abortTransaction();
                    return "aborted";
                });
            }
            older.close(Duration.ZERO);
        }
    }

    private static void offsets(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String group = "transacted-" + protocol;
            Properties properties = servers.with(
                    "group.id", group, "group.protocol", protocol, "enable.auto.commit", "false",
                    "auto.offset.reset", "earliest", "isolation.level", "read_committed");
            try (KafkaProducer<byte[], byte[]> producer = Producing.producer(transactional(servers, "with-offsets-" + protocol));
                    KafkaConsumer<byte[], byte[]> consumer = Producing.consumer(properties)) {
                producer.initTransactions();
                consumer.subscribe(List.of(TOPIC));
                Answers.await("records", () -> !consumer.poll(Duration.ofMillis(100)).isEmpty());
                for (boolean commits : new boolean[] {true, false}) {
                    producer.beginTransaction();
                    send(producer, 1, group + " " + commits);
                    long offset = commits ? 5 : 6;
                    answers.ask(group + ": offsets " + commits, () -> {
                        producer.sendOffsetsToTransaction(
                                Map.of(P0, new OffsetAndMetadata(offset)), consumer.groupMetadata());
                        return "sent";
                    });
                    answers.ask(group + ": while it is open " + commits, () -> committed(admin, group, false));
                    answers.ask(group + ": stable while it is open " + commits, () -> committed(admin, group, true));
                    if (commits) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                    settled(admin, "with-offsets-" + protocol);
                    answers.ask(group + ": afterwards " + commits, () -> committed(admin, group, true));
                }
                ConsumerGroupMetadata real = consumer.groupMetadata();
                wrongOffsets(producer, answers, group + ": offsets of another generation",
                        new ConsumerGroupMetadata(group, real.generationId() + 7, real.memberId(), real.groupInstanceId()));
            }
            try (KafkaProducer<byte[], byte[]> producer = Producing.producer(transactional(servers, "of-nobody-" + protocol))) {
                producer.initTransactions();
                wrongOffsets(producer, answers, group + ": offsets of nobody",
                        new ConsumerGroupMetadata(group, 1, "nobody", java.util.Optional.empty()));
            }
        }
    }

    private static void wrongOffsets(
            KafkaProducer<byte[], byte[]> producer, Answers answers, String question, ConsumerGroupMetadata wrong)
            throws InterruptedException {
        producer.beginTransaction();
        answers.ask(question, () -> {
            producer.sendOffsetsToTransaction(Map.of(P0, new OffsetAndMetadata(7)), wrong);
            return "sent";
        });
        answers.ask(question + ", commit", () -> {
            producer.commitTransaction();
            return "committed";
        });
        answers.ask(question + ", abort", () -> {
            producer.abortTransaction();
            return "aborted";
        });
    }

    private static Object committed(Admin admin, String group, boolean isStable) throws Exception {
        ListConsumerGroupOffsetsOptions options =
                new ListConsumerGroupOffsetsOptions().requireStable(isStable).timeoutMs(1_500);
        OffsetAndMetadata found = admin.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata().get().get(P0);
        return found == null ? null : found.offset();
    }

    private static void timedOut(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        Properties properties = transactional(servers, "late");
        properties.put("transaction.timeout.ms", "1000");
        KafkaProducer<byte[], byte[]> producer = Producing.producer(properties);
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, 0, "late");
        answers.ask("late: what becomes of it", () -> {
            Answers.await("the end of it", () -> stateOf(admin, "late") == TransactionState.COMPLETE_ABORT);
            return described(admin, "late");
        });
        answers.ask("late: it sends", () -> {
            send(producer, 0, "too late");
            return "sent";
        });
        answers.ask("late: it commits", () -> {
            producer.commitTransaction();
            return "committed";
        });
        answers.ask("late: it aborts and goes on", () -> {
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, 0, "after it was late");
            producer.commitTransaction();
            return "committed";
        });
        producer.close(Duration.ZERO);
    }

    private static void wrong(JavaClients.Servers servers, Answers answers) throws Exception {
        for (String timeout : List.of("900000", "900001")) {
            Properties properties = transactional(servers, "timeout-" + timeout);
            properties.put("transaction.timeout.ms", timeout);
            try (KafkaProducer<byte[], byte[]> producer = Producing.producer(properties)) {
                answers.ask("a timeout of " + timeout, () -> {
                    producer.initTransactions();
                    return "begun";
                });
            }
        }
        Properties properties = transactional(servers, "wrong");
        properties.putAll(Map.of("max.request.size", "3000000", "compression.type", "none"));
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(properties)) {
            producer.initTransactions();
            producer.beginTransaction();
            answers.ask("wrong: a record that is too large", () -> {
                producer.send(new ProducerRecord<>(TOPIC, 0, null, new byte[2_000_000])).get();
                return "sent";
            });
            answers.ask("wrong: commit after an error", () -> {
                try {
                    producer.commitTransaction();
                    return "committed";
                } catch (KafkaException failure) {
                    // The error of the record itself, or one that says that there was one, if the client knows it by then.
                    return "refused";
                }
            });
            answers.ask("wrong: abort after an error", () -> {
                producer.abortTransaction();
                return "aborted";
            });
            answers.ask("wrong: goes on", () -> {
                producer.beginTransaction();
                send(producer, 0, "after an error");
                producer.commitTransaction();
                return "committed";
            });
        }
    }
}
