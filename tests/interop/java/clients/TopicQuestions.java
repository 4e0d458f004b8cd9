import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Topics: create, grow, describe, delete; records: offsets by time, delete. */
final class TopicQuestions {
    private static final Uuid UNKNOWN = Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAg");
    private static final long T0 = 1_700_000_000_000L;

    private TopicQuestions() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        creating(admin, answers);
        describing(admin, answers);
        growing(admin, answers);
        offsets(servers, admin, answers);
        deletingRecords(admin, answers);
        deleting(admin, answers);
    }

    /** Create topics, and wait until the broker has heard of them from its controller. */
    static void make(Admin admin, NewTopic... topics) throws Exception {
        admin.createTopics(List.of(topics)).all().get();
        List<String> names = Arrays.stream(topics).map(NewTopic::name).toList();
        Answers.await("topics " + names, () -> topics(admin).containsAll(names));
    }

    private static void creating(Admin admin, Answers answers) throws InterruptedException {
        create(admin, answers, "create", new NewTopic("t1", 3, (short) 1));
        create(admin, answers, "create with defaults", new NewTopic("defaults", Optional.empty(), Optional.empty()));
        create(admin, answers, "create again", new NewTopic("t1", 3, (short) 1));
        create(admin, answers, "create without partitions", new NewTopic("zero", 0, (short) 1));
        create(admin, answers, "create with -2 partitions", new NewTopic("minus", -2, (short) 1));
        create(admin, answers, "create with two replicas", new NewTopic("two", 1, (short) 2));
        create(admin, answers, "create without replicas", new NewTopic("none", 1, (short) 0));
        create(admin, answers, "create of a bad name", new NewTopic("a b", 1, (short) 1));
        create(admin, answers, "create of the name ..", new NewTopic("..", 1, (short) 1));
        create(admin, answers, "create of no name", new NewTopic("", 1, (short) 1));
        create(admin, answers, "create of a long name", new NewTopic("x".repeat(250), 1, (short) 1));
        create(admin, answers, "create of an internal topic's name", new NewTopic("__own", 1, (short) 1));
        create(admin, answers, "create a.b", new NewTopic("a.b", 1, (short) 1));
        create(admin, answers, "create a_b, which collides", new NewTopic("a_b", 1, (short) 1));
        create(admin, answers, "create two of one name", new NewTopic("twice", 1, (short) 1), new NewTopic("twice", 2, (short) 1));
        create(admin, answers, "create one good, one bad", new NewTopic("good", 1, (short) 1), new NewTopic("t1", 1, (short) 1));
        create(admin, answers, "create with settings", new NewTopic("set", 1, (short) 1)
                .configs(Map.of("cleanup.policy", "compact,delete", "segment.bytes", "2097152", "retention.ms", "3600000")));
        create(admin, answers, "create with an unknown setting", new NewTopic("bad-1", 1, (short) 1)
                .configs(Map.of("no.such.setting", "1")));
        create(admin, answers, "create with a bad setting", new NewTopic("bad-2", 1, (short) 1)
                .configs(Map.of("segment.bytes", "none")));
        create(admin, answers, "create with a setting out of range", new NewTopic("bad-3", 1, (short) 1)
                .configs(Map.of("segment.bytes", "1")));
        create(admin, answers, "create with a bad policy", new NewTopic("bad-4", 1, (short) 1)
                .configs(Map.of("cleanup.policy", "shred")));
        create(admin, answers, "create by an unknown node", new NewTopic("bad-5", Map.of(0, List.of(99))));
        create(admin, answers, "create with a hole", new NewTopic("bad-6", Map.of(0, List.of(1), 2, List.of(1))));
        create(admin, answers, "create by assignment", new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1))));
        CreateTopicsOptions only = new CreateTopicsOptions().validateOnly(true);
        create(admin, answers, "create, only tried", only, new NewTopic("tried", 1, (short) 1));
        create(admin, answers, "create again, only tried", only, new NewTopic("t1", 1, (short) 1));
    }

    private static void create(Admin admin, Answers answers, String question, NewTopic... topics)
            throws InterruptedException {
        create(admin, answers, question, new CreateTopicsOptions(), topics);
    }

    private static void create(
            Admin admin, Answers answers, String question, CreateTopicsOptions options, NewTopic... topics)
            throws InterruptedException {
        answers.ask(question, () -> {
            CreateTopicsResult result = admin.createTopics(Arrays.asList(topics), options);
            Map<String, Object> found = new TreeMap<>();
            for (String name : result.values().keySet()) {
                found.put(name, told(() -> Answers.fields(
                        "partitions", result.numPartitions(name).get(),
                        "replicas", result.replicationFactor(name).get(),
                        "has_id", !result.topicId(name).get().equals(Uuid.ZERO_UUID),
                        "configs", ConfigQuestions.changed(result.config(name).get()))));
            }
            return found;
        });
    }

    private static Object told(java.util.concurrent.Callable<?> call) throws Exception {
        try {
            return call.call();
        } catch (ExecutionException failure) {
            return Answers.nameOf(failure);
        }
    }

    static Map<String, Object> each(Map<?, ? extends KafkaFuture<?>> futures, java.util.function.Function<Object, Object> shown)
            throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<?, ? extends KafkaFuture<?>> one : futures.entrySet()) {
            found.put(one.getKey().toString(), told(() -> shown.apply(one.getValue().get())));
        }
        return found;
    }

    private static Object shown(TopicDescription topic) {
        List<Object> partitions = topic.partitions().stream()
                .map(one -> (Object) Answers.fields(
                        "partition", one.partition(),
                        "leader", one.leader().id(),
                        "replicas", ClusterQuestions.ids(one.replicas()),
                        "isr", ClusterQuestions.ids(one.isr()),
                        "elr", ClusterQuestions.ids(one.elr()),
                        "last_known_elr", ClusterQuestions.ids(one.lastKnownElr())))
                .toList();
        return Answers.fields(
                "name", topic.name(),
                "is_internal", topic.isInternal(),
                "operations", topic.authorizedOperations() == null
                        ? null
                        : topic.authorizedOperations().stream().map(Enum::name).sorted().toList(),
                "partitions", partitions);
    }

    private static void describing(Admin admin, Answers answers) throws InterruptedException {
        // The broker hears of topics in the order in which its controller took them.
        answers.ask("list topics", () -> {
            Answers.await("the last topic", () -> topics(admin).contains("assigned"));
            return topics(admin);
        });
        answers.ask("list internal topics", () -> admin
                .listTopics(new ListTopicsOptions().listInternal(true))
                .listings()
                .get()
                .stream()
                .map(one -> one.name() + " " + one.isInternal())
                .filter(name -> !name.startsWith("__consumer") && !name.startsWith("__transaction"))
                .sorted()
                .toList());
        DescribeTopicsOptions operations = new DescribeTopicsOptions().includeAuthorizedOperations(true);
        List<String> names = List.of("t1", "set", "no-such", "a b", "");
        answers.ask("describe topics by name", () -> each(
                admin.describeTopics(names).topicNameValues(), one -> shown((TopicDescription) one)));
        answers.ask("describe operations", () -> each(
                admin.describeTopics(List.of("t1"), operations).topicNameValues(), one -> shown((TopicDescription) one)));
        answers.ask("describe one by one", () -> each(
                admin.describeTopics(List.of("t1"), new DescribeTopicsOptions().partitionSizeLimitPerResponse(1))
                        .topicNameValues(),
                one -> shown((TopicDescription) one)));
        answers.ask("describe topics by id", () -> {
            Uuid id = admin.describeTopics(List.of("t1")).allTopicNames().get().get("t1").topicId();
            TopicCollection ids = TopicCollection.ofTopicIds(List.of(id, UNKNOWN));
            Map<String, Object> found = each(
                    admin.describeTopics(ids).topicIdValues(), one -> shown((TopicDescription) one));
            found.put("t1", found.remove(id.toString()));
            return found;
        });
    }

    private static void growing(Admin admin, Answers answers) throws InterruptedException {
        Map<String, NewPartitions> wanted = Map.of(
                "t1", NewPartitions.increaseTo(4),
                "set", NewPartitions.increaseTo(1),
                "a.b", NewPartitions.increaseTo(0),
                "no-such", NewPartitions.increaseTo(2),
                "good", NewPartitions.increaseTo(2, List.of(List.of(99))),
                "defaults", NewPartitions.increaseTo(3, List.of(List.of(1))),
                "assigned", NewPartitions.increaseTo(3, List.of(List.of(1))));
        answers.ask("grow", () -> each(admin.createPartitions(wanted).values(), String::valueOf));
        answers.ask("less partitions", () -> each(
                admin.createPartitions(Map.of("t1", NewPartitions.increaseTo(2))).values(), String::valueOf));
        answers.ask("grown", () -> {
            Answers.await("the fourth partition", () -> partitionsOf(admin, List.of("t1")).containsValue(4));
            return partitionsOf(admin, List.of("t1", "set", "good", "defaults", "assigned"));
        });
    }

    private static Map<String, Integer> partitionsOf(Admin admin, Collection<String> names) {
        Map<String, Integer> found = new TreeMap<>();
        try {
            admin.describeTopics(names)
                    .allTopicNames()
                    .get()
                    .forEach((name, topic) -> found.put(name, topic.partitions().size()));
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
        return found;
    }

    /** Ten records, a second apart but the last, which is older. */
    private static void offsets(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(servers.with(), bytes, bytes)) {
            for (int n = 0; n < 10; n++) {
                byte[] value = Integer.toString(n).getBytes(StandardCharsets.UTF_8);
                long timestamp = n == 9 ? T0 - 5_000 : T0 + 1_000 * n;
                producer.send(new ProducerRecord<>("t1", 0, timestamp, null, value)).get();
            }
        }
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
                "earliest", OffsetSpec.earliest(),
                "latest", OffsetSpec.latest(),
                "max timestamp", OffsetSpec.maxTimestamp(),
                "earliest local", OffsetSpec.earliestLocal(),
                "latest tiered", OffsetSpec.latestTiered(),
                "in the middle", OffsetSpec.forTimestamp(T0 + 2_500),
                "at one", OffsetSpec.forTimestamp(T0 + 3_000),
                "before all", OffsetSpec.forTimestamp(0),
                "after all", OffsetSpec.forTimestamp(T0 + 60_000)));
        for (Map.Entry<String, OffsetSpec> one : specs.entrySet()) {
            for (IsolationLevel isolation : IsolationLevel.values()) {
                for (TopicPartition partition : List.of(new TopicPartition("t1", 0), new TopicPartition("t1", 1))) {
                    answers.ask("offset " + one.getKey() + " of " + partition + " " + isolation, () -> {
                        var found = admin.listOffsets(Map.of(partition, one.getValue()), new ListOffsetsOptions(isolation))
                                .partitionResult(partition)
                                .get();
                        return Answers.fields(
                                "offset", found.offset(), "timestamp", found.timestamp(), "epoch", found.leaderEpoch());
                    });
                }
            }
        }
    }

    private static void deletingRecords(Admin admin, Answers answers) throws InterruptedException {
        delete(admin, answers, "delete records", "t1", 0, 4);
        delete(admin, answers, "delete fewer", "t1", 0, 2);
        delete(admin, answers, "delete too many", "t1", 0, 11);
        delete(admin, answers, "delete to a negative offset", "t1", 0, -5);
        delete(admin, answers, "delete all", "t1", 0, -1);
        delete(admin, answers, "delete of no partition", "t1", 9, 0);
        delete(admin, answers, "delete of no topic", "no-such", 0, 0);
        delete(admin, answers, "delete of an empty partition", "t1", 1, 0);
        answers.ask("offset earliest after a deletion", () -> admin
                .listOffsets(Map.of(new TopicPartition("t1", 0), OffsetSpec.earliest()))
                .all()
                .get()
                .values()
                .iterator()
                .next()
                .offset());
    }

    private static void delete(Admin admin, Answers answers, String question, String topic, int partition, long offset)
            throws InterruptedException {
        TopicPartition where = new TopicPartition(topic, partition);
        org.apache.kafka.clients.admin.DeleteRecordsOptions options =
                new org.apache.kafka.clients.admin.DeleteRecordsOptions().timeoutMs(8_000);
        answers.ask(question, () -> admin
                .deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(offset)), options)
                .lowWatermarks()
                .get(where)
                .get()
                .lowWatermark());
    }

    private static void deleting(Admin admin, Answers answers) throws InterruptedException {
        answers.ask("delete topics by name", () -> each(
                admin.deleteTopics(List.of("good", "no-such", "a b")).topicNameValues(), String::valueOf));
        answers.ask("delete topics by id", () -> {
            Uuid id = admin.describeTopics(List.of("set")).allTopicNames().get().get("set").topicId();
            Map<String, Object> found =
                    each(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id, UNKNOWN))).topicIdValues(), String::valueOf);
            found.put("set", found.remove(id.toString()));
            return found;
        });
        answers.ask("left", () -> {
            Answers.await("the end of the topics", () -> topics(admin).stream().noneMatch(List.of("good", "set")::contains));
            return topics(admin);
        });
    }

    private static List<String> topics(Admin admin) {
        try {
            return admin.listTopics().names().get().stream().sorted().toList();
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }
}
