import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;

/**
 * Clients that live on while another server takes the root over, four times.
 *
 * <p>Members of groups of both protocols, one of which went without a word before each of the first hand-overs; an
 * idempotent producer; transactions with records and offsets that one server begins and the next one ends.
 */
final class Handover {
    private static final String TOPIC = "over";
    private static final String TRANSACTED = "over-transacted";
    private static final String PATIENCE_MS = "180000";
    private static final int PARTITIONS = 4;
    private static final int RECORDS = 40;
    private static final int TURNS = 4;

    private Handover() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(
                admin, new NewTopic(TOPIC, PARTITIONS, (short) 1), new NewTopic(TRANSACTED, 1, (short) 1));
        Map<String, List<Member>> groups = new TreeMap<>();
        for (String protocol : List.of("classic", "consumer")) {
            groups.put(protocol, List.of(member(servers, protocol), member(servers, protocol)));
        }
        Properties patient = servers.with(
                "linger.ms", "0", "max.block.ms", PATIENCE_MS, "delivery.timeout.ms", PATIENCE_MS);
        Properties transactional = servers.with(
                "transactional.id", "over", "max.block.ms", PATIENCE_MS, "transaction.timeout.ms", "900000");
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(patient);
                KafkaProducer<byte[], byte[]> transacting = Producing.producer(transactional)) {
            transacting.initTransactions();
            for (int turn = 0; turn < TURNS; turn++) {
                String at = "turn " + turn + ": ";
                answers.say(at + "places", produced(producer, turn));
                for (Map.Entry<String, List<Member>> one : groups.entrySet()) {
                    received(admin, answers, at + one.getKey() + ": ", one.getKey(), one.getValue(), turn);
                }
                transacted(admin, answers, transacting, turn);
                if (turn < 2) {
                    goneWithoutAWord(servers, answers, groups, at);
                }
                if (turn < TURNS - 1) {
                    answers.restart();
                }
            }
        }
        for (List<Member> members : groups.values()) {
            for (Member member : members) {
                member.close();
            }
        }
        answers.say("committed records", Producing.read(servers, TRANSACTED, "read_committed"));
        answers.say("all records", Producing.read(servers, TRANSACTED, "read_uncommitted"));
    }

    private static Member member(JavaClients.Servers servers, String protocol) {
        return member(servers, protocol, GroupMembershipOperation.DEFAULT);
    }

    private static Member member(JavaClients.Servers servers, String protocol, GroupMembershipOperation leaves) {
        String assignor = protocol.equals("classic") ? "CooperativeStickyAssignor" : "uniform";
        return Member.start(Member.properties(servers, "over-" + protocol, protocol, assignor), TOPIC, leaves);
    }

    private static List<String> produced(KafkaProducer<byte[], byte[]> producer, int turn) throws Exception {
        List<String> places = new ArrayList<>();
        for (int n = 0; n < RECORDS; n++) {
            byte[] value = Producing.text("turn " + turn + " record " + n);
            RecordMetadata place = producer.send(
                            new ProducerRecord<>(TOPIC, n % PARTITIONS, Producing.T0, null, value))
                    .get();
            places.add(place.partition() + ":" + place.offset());
        }
        return places;
    }

    private static void received(
            Admin admin, Answers answers, String at, String protocol, List<Member> members, int turn)
            throws InterruptedException {
        answers.ask(at + "assigned", () -> {
            Answers.await("two partitions each", () -> members.stream().allMatch(one -> one.assigned.size() == 2));
            return members.stream().map(one -> one.assigned.size()).toList();
        });
        answers.ask(at + "received", () -> {
            int wanted = (turn + 1) * RECORDS;
            TreeSet<String> found = new TreeSet<>();
            Answers.await("all records", () -> {
                members.forEach(one -> found.addAll(one.records));
                return found.size() >= wanted;
            });
            return found.size();
        });
        answers.ask(at + "errors", () -> members.stream().map(one -> String.valueOf(one.error)).toList());
        String group = "over-" + protocol;
        answers.ask(at + "described", () -> {
            // Who heard too late of the server that took over has joined again.
            Answers.await("a stable group", () -> Groups.described(admin, group).groupState() == GroupState.STABLE);
            return Groups.shown(Groups.described(admin, group));
        });
        // What a member got that went is committed by the one that gets it again, some time after it was counted.
        answers.ask(at + "offsets", () -> {
            long wanted = (turn + 1) * RECORDS;
            Answers.await("all commits", () -> Groups.sum(Groups.committed(admin, group)) >= wanted);
            return Groups.committed(admin, group);
        });
    }

    /** End the transaction that the server before began, as by turns, and begin one for the next. */
    private static void transacted(
            Admin admin, Answers answers, KafkaProducer<byte[], byte[]> producer, int turn) throws Exception {
        TopicPartition partition = new TopicPartition(TRANSACTED, 0);
        String at = "turn " + turn + ": transaction: ";
        if (turn > 0) {
            boolean commits = turn % 2 == 1;
            answers.ask(at + "as it was left", () -> Transactions.described(admin, "over"));
            answers.ask(at + "producers as they were left", () -> Transactions.producers(admin, partition));
            answers.ask(at + "one record more", () -> producer.send(record("turn " + turn + " more")).get().offset());
            answers.ask(at + (commits ? "commit" : "abort"), () -> {
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                Transactions.settled(admin, "over");
                return Transactions.described(admin, "over");
            });
            answers.ask(at + "offset of its group", () -> {
                OffsetAndMetadata found = admin.listConsumerGroupOffsets("over-offsets")
                        .partitionsToOffsetAndMetadata()
                        .get()
                        .get(partition);
                return found == null ? null : found.offset();
            });
        }
        producer.beginTransaction();
        producer.send(record("turn " + turn + " begun")).get();
        producer.sendOffsetsToTransaction(
                Map.of(partition, new OffsetAndMetadata(100 + turn)), new ConsumerGroupMetadata("over-offsets"));
    }

    private static ProducerRecord<byte[], byte[]> record(String value) {
        return new ProducerRecord<>(TRANSACTED, 0, Producing.T0, null, Producing.text(value));
    }

    /** Let a third member of each group get partitions and end without a word, for the next server to find out. */
    private static void goneWithoutAWord(
            JavaClients.Servers servers, Answers answers, Map<String, List<Member>> groups, String at)
            throws InterruptedException {
        for (String protocol : groups.keySet()) {
            Member third = member(servers, protocol, GroupMembershipOperation.REMAIN_IN_GROUP);
            answers.ask(at + protocol + ": a third member", () -> {
                Answers.await("a partition for the third", () -> !third.assigned.isEmpty());
                return third.assigned.size();
            });
            third.close();
        }
    }
}
