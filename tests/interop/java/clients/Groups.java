import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;

/** Groups of three, of both protocols and each assignor: one member is killed, then the server starts again. */
final class Groups {
    private static final int PARTITIONS = 6;
    private static final int RECORDS = 60;

    private Groups() {}

    /** What there is of one group, its members here and the one in a process that is killed. */
    private static final class Variant {
        final String name;
        final String topic;
        final String protocol;
        final String assignor;
        final List<Member> members = new ArrayList<>();
        final ConcurrentLinkedQueue<String> ofVictim = new ConcurrentLinkedQueue<>();
        volatile int assignedToVictim;

        Variant(String name, String topic, String protocol, String assignor) {
            this.name = name;
            this.topic = topic;
            this.protocol = protocol;
            this.assignor = assignor;
        }

        Properties properties(JavaClients.Servers servers) {
            return Member.properties(servers, name, protocol, assignor);
        }

        List<Integer> sizes() {
            List<Integer> sizes = new ArrayList<>(members.stream().map(one -> one.assigned.size()).toList());
            sizes.add(assignedToVictim);
            sizes.removeIf(size -> size == 0);
            return sizes.stream().sorted().toList();
        }

        Collection<String> records() {
            List<String> found = new ArrayList<>(ofVictim);
            members.forEach(one -> found.addAll(one.records));
            return found;
        }
    }

    private static List<Variant> variants() {
        return List.of(
                new Variant("range", "of-range", "classic", "RangeAssignor"),
                new Variant("roundrobin", "of-roundrobin", "classic", "RoundRobinAssignor"),
                new Variant("sticky", "of-sticky", "classic", "StickyAssignor"),
                new Variant("cooperative", "of-cooperative", "classic", "CooperativeStickyAssignor"),
                new Variant("new-uniform", "of-new-uniform", "consumer", "uniform"),
                new Variant("new-range", "of-new-range", "consumer", "range"),
                new Variant("pattern", "^of-pattern-.*", "classic", "CooperativeStickyAssignor"),
                new Variant("new-pattern", "^of-new-pattern-.*", "consumer", "uniform"));
    }

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        Map<String, Variant> variants = new TreeMap<>();
        variants().forEach(one -> variants.put(one.name, one));
        for (Variant one : variants.values()) {
            TopicQuestions.make(admin, new NewTopic(topicOf(one), PARTITIONS, (short) 1));
        }
        for (Variant one : variants.values()) {
            for (int member = 0; member < 2; member++) {
                one.members.add(Member.start(one.properties(servers), one.topic));
            }
        }
        Process victim = victims(servers, variants);
        try {
            assignedAs(variants, answers, "three members", List.of(2, 2, 2));
            produce(servers, variants, 0);
            received(variants, answers, "three members", RECORDS);
            described(admin, variants, answers, "three members", GroupState.STABLE, RECORDS);
            refused(servers, admin, answers);
        } finally {
            victim.destroyForcibly().waitFor();
        }
        variants.values().forEach(one -> one.assignedToVictim = 0);
        produce(servers, variants, RECORDS);
        assignedAs(variants, answers, "one killed", List.of(3, 3));
        received(variants, answers, "one killed", 2 * RECORDS);
        answers.restart();
        produce(servers, variants, 2 * RECORDS);
        received(variants, answers, "server started again", 3 * RECORDS);
        assignedAs(variants, answers, "server started again", List.of(3, 3));
        described(admin, variants, answers, "server started again", GroupState.STABLE, 3 * RECORDS);
        for (Variant one : variants.values()) {
            admin.createPartitions(Map.of(topicOf(one), NewPartitions.increaseTo(PARTITIONS + 2))).all().get();
        }
        assignedAs(variants, answers, "more partitions", List.of(4, 4));
        for (Variant one : variants.values()) {
            for (Member member : one.members) {
                member.close();
                answers.say(one.name + ": error of a member " + one.members.indexOf(member), member.error);
            }
        }
        described(admin, variants, answers, "all left", GroupState.EMPTY, 3 * RECORDS);
        for (Variant one : variants.values()) {
            answers.ask(one.name + ": delete", () -> admin.deleteConsumerGroups(List.of(one.name)).all().get());
        }
    }

    private static String topicOf(Variant one) {
        return one.topic.replaceAll("[\\^.*]", "");
    }

    private static Process victims(JavaClients.Servers servers, Map<String, Variant> variants) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                "-cp", System.getProperty("java.class.path"), "Member", servers.address()));
        variants.values().forEach(one -> command.addAll(List.of(one.topic, one.name, one.protocol, one.assignor)));
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Thread thread = new Thread(() -> listen(process, variants));
        thread.setDaemon(true);
        thread.start();
        return process;
    }

    private static void listen(Process process, Map<String, Variant> variants) {
        try (BufferedReader lines =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                Variant variant = variants.get(words[0]);
                if (words[1].equals("assigned")) {
                    variant.assignedToVictim = Integer.parseInt(words[2]);
                } else {
                    variant.ofVictim.add(words[2]);
                }
            }
        } catch (IOException failure) {
            // It is killed.
        }
    }

    private static void produce(JavaClients.Servers servers, Map<String, Variant> variants, int first) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        // One request at a time: a server that started again may refuse a producer's first batch and take its second,
        // after which the first one is out of order until it has lasted too long.
        Properties properties = servers.with("linger.ms", "5", "max.in.flight.requests.per.connection", "1");
        try (KafkaProducer<byte[], byte[]> producer = Producing.producer(properties)) {
            for (Variant one : variants.values()) {
                for (int n = first; n < first + RECORDS; n++) {
                    sent.add(producer.send(
                            new ProducerRecord<>(topicOf(one), n % PARTITIONS, null, Producing.text("v" + n))));
                }
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static void assignedAs(Map<String, Variant> variants, Answers answers, String when, List<Integer> wanted)
            throws InterruptedException {
        for (Variant one : variants.values()) {
            answers.ask(one.name + ", " + when + ": assigned", () -> {
                Answers.await(one.name + " assigned " + wanted, () -> one.sizes().equals(wanted));
                return one.sizes();
            });
        }
    }

    private static void received(Map<String, Variant> variants, Answers answers, String when, int count)
            throws InterruptedException {
        for (Variant one : variants.values()) {
            answers.ask(one.name + ", " + when + ": received", () -> {
                Answers.await(one.name + " records", () -> new TreeSet<>(one.records()).size() >= count);
                return new TreeSet<>(one.records()).size();
            });
            // Where a commit was refused, a record may come twice.
            boolean isSure = one.members.stream().allMatch(member -> member.refusals.get() == 0);
            answers.say(one.name + ", " + when + ": received twice", isSure ? one.records().size() - count : 0);
        }
    }

    private static void described(
            Admin admin, Map<String, Variant> variants, Answers answers, String when, GroupState state, long records)
            throws InterruptedException {
        for (Variant one : variants.values()) {
            // Members have what they are to have, and may not have said so, or join again after a commit that was refused.
            answers.ask(one.name + ", " + when + ": described", () -> {
                Answers.await(one.name + " " + state, () -> described(admin, one.name).groupState() == state);
                return shown(described(admin, one.name));
            });
            answers.ask(one.name + ", " + when + ": offsets", () -> {
                Answers.await(one.name + " commits", () -> sum(committed(admin, one.name)) >= records);
                return committed(admin, one.name);
            });
        }
    }

    static long sum(Map<String, Long> offsets) {
        return offsets.values().stream().mapToLong(Long::longValue).sum();
    }

    static ConsumerGroupDescription described(Admin admin, String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    static Map<String, Long> committed(Admin admin, String group) {
        try {
            Map<String, Long> found = new TreeMap<>();
            admin.listConsumerGroupOffsets(group)
                    .partitionsToOffsetAndMetadata()
                    .get()
                    .forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
            return found;
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    static Object shown(ConsumerGroupDescription group) {
        return Answers.fields(
                "state", group.groupState().toString(),
                "type", group.type().toString(),
                "is_simple", group.isSimpleConsumerGroup(),
                "assignor", group.partitionAssignor(),
                "coordinator", group.coordinator().id(),
                "has_epochs", group.groupEpoch().isPresent() + " " + group.targetAssignmentEpoch().isPresent(),
                "members", group.members().stream()
                        .map(one -> Answers.fields(
                                        "instance", one.groupInstanceId().orElse(null),
                                        "host", one.host(),
                                        "client", one.clientId().replaceAll("\\d+", "N"),
                                        "partitions", one.assignment().topicPartitions().size(),
                                        "has_target", one.targetAssignment().isPresent(),
                                        "has_epoch", one.memberEpoch().isPresent(),
                                        "upgraded", one.upgraded().orElse(null))
                                .toString())
                        .sorted()
                        .toList());
    }

    /** What is refused while a group has members. */
    private static void refused(JavaClients.Servers servers, Admin admin, Answers answers) throws InterruptedException {
        for (String group : List.of("range", "new-uniform")) {
            String topic = "of-" + group;
            answers.ask(group + ": delete with members", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            answers.ask(group + ": delete offsets of its topic", () -> admin
                    .deleteConsumerGroupOffsets(group, java.util.Set.of(new org.apache.kafka.common.TopicPartition(topic, 0)))
                    .all()
                    .get());
            answers.ask(group + ": alter offsets", () -> admin
                    .alterConsumerGroupOffsets(group, Map.of(
                            new org.apache.kafka.common.TopicPartition(topic, 0),
                            new org.apache.kafka.clients.consumer.OffsetAndMetadata(1)))
                    .all()
                    .get());
        }
        answers.ask("groups by state", () -> admin.listGroups().all().get().stream()
                .filter(one -> IntStream.range(0, 8).anyMatch(n -> variants().get(n).name.equals(one.groupId())))
                .map(one -> one.groupId() + " " + one.type() + " " + one.protocol() + " " + one.groupState())
                .sorted()
                .toList());
        Properties other = Member.properties(servers, "range", "classic", "RoundRobinAssignor");
        answers.ask("range: a member without a common assignor", () -> {
            Member member = Member.start(other, "of-range");
            Answers.await("an error", () -> member.error != null);
            return member.error;
        });
        answers.ask("new-uniform: a member with an unknown assignor", () -> {
            Member member = Member.start(Member.properties(servers, "new-uniform", "consumer", "none"), "of-new-uniform");
            Answers.await("an error", () -> member.error != null);
            return member.error;
        });
    }
}
