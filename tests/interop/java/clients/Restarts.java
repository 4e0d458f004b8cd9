import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** A server that stops and starts again under producers, open transactions and consumers. */
final class Restarts {
    private static final int RECORDS = 300;
    private static final String PATIENCE_MS = "180000";

    private Restarts() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(
                admin,
                new NewTopic("restarted", 1, (short) 1),
                new NewTopic("restarted-idle", 1, (short) 1),
                new NewTopic("restarted-transacted", 1, (short) 1));
        Properties reading = Member.properties(servers, "restarted", "classic", "RangeAssignor");
        Properties readingNew = Member.properties(servers, "restarted-new", "consumer", "uniform");
        List<Member> members = List.of(Member.start(reading, "restarted"), Member.start(readingNew, "restarted"));
        Properties transactional = servers.with("transactional.id", "restarted", "linger.ms", "0", "max.block.ms", PATIENCE_MS);
        Properties patient =
                servers.with("linger.ms", "1", "max.block.ms", PATIENCE_MS, "delivery.timeout.ms", PATIENCE_MS);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(patient);
                KafkaProducer<byte[], byte[]> idle = Producing.producer(patient);
                KafkaProducer<byte[], byte[]> transacting = Producing.producer(transactional)) {
            transacting.initTransactions();
            transacting.beginTransaction();
            transacting.send(record("restarted-transacted", 0)).get();
            idle.send(record("restarted-idle", 0)).get();
            Thread sender = new Thread(() -> {
                for (int n = 0; n < RECORDS; n++) {
                    sent.add(producer.send(record("restarted", n)));
                    try {
                        Thread.sleep(10);
                    } catch (InterruptedException interruption) {
                        return;
                    }
                }
            });
            sender.start();
            Answers.await("some records", () -> members.stream().allMatch(one -> one.records.size() > 20));
            answers.restart();
            transacting.send(record("restarted-transacted", 1)).get();
            answers.ask("the open transaction commits", () -> {
                transacting.commitTransaction();
                return "committed";
            });
            idle.send(record("restarted-idle", 1)).get();
            sender.join();
            producer.flush();
        }
        long last = -1;
        boolean isInOrder = true;
        for (Future<RecordMetadata> one : sent) {
            isInOrder &= one.get().offset() == last + 1;
            last = one.get().offset();
        }
        answers.say("each record was acknowledged, in order, with no other between", isInOrder);
        answers.say("records", read(servers, "restarted", "read_uncommitted"));
        answers.say("records of the idle one", read(servers, "restarted-idle", "read_uncommitted"));
        answers.say("records of the transaction", read(servers, "restarted-transacted", "read_committed"));
        for (Member member : members) {
            String of = "member " + members.indexOf(member) + ": ";
            answers.ask(of + "records", () -> {
                Answers.await("records", () -> member.records.size() >= RECORDS);
                return member.records.size();
            });
            member.close();
            answers.say(of + "error", member.error);
        }
        for (String group : List.of("restarted", "restarted-new")) {
            answers.ask(group + ": committed", () -> admin.listConsumerGroupOffsets(group)
                    .partitionsToOffsetAndMetadata()
                    .get()
                    .get(new TopicPartition("restarted", 0))
                    .offset());
        }
        answers.ask("producers", () -> admin.describeProducers(List.of(new TopicPartition("restarted-transacted", 0)))
                .all()
                .get()
                .values()
                .iterator()
                .next()
                .activeProducers()
                .stream()
                .map(one -> Map.of("sequence", one.lastSequence(), "epoch", one.producerEpoch()))
                .toList());
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int number) {
        // Of now: a server that starts forgets producers whose records are old.
        return new ProducerRecord<>(topic, 0, null, Producing.text("record " + number));
    }

    private static List<String> read(JavaClients.Servers servers, String topic, String isolation) throws Exception {
        return Producing.read(servers, topic, isolation).stream()
                .map(one -> one.toString().replaceAll(" CreateTime \\d+ ", " "))
                .toList();
    }
}
