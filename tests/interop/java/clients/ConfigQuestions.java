import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;

/** Settings: shown, changed, refused. */
final class ConfigQuestions {
    private static final String TOPIC = "configured";
    private static final String MARKER = "__last-change";
    private static final AtomicInteger LAST = new AtomicInteger(1_000_000);

    private ConfigQuestions() {}

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(admin, new NewTopic(TOPIC, 1, (short) 1).configs(Map.of("retention.ms", "7200000")));
        TopicQuestions.make(admin, new NewTopic(MARKER, 1, (short) 1));
        String node = admin.describeCluster().nodes().get().iterator().next().idString();
        describing(admin, answers, node);
        for (OpType type : OpType.values()) {
            change(admin, answers, type + " of a number", TOPIC, new ConfigEntry("max.message.bytes", "2000000"), type);
            change(admin, answers, type + " in a list", TOPIC, new ConfigEntry("cleanup.policy", "compact"), type);
            change(admin, answers, type + " of an unknown one", TOPIC, new ConfigEntry("no.such", "1"), type);
        }
        change(admin, answers, "unset the list", TOPIC, new ConfigEntry("cleanup.policy", ""), OpType.DELETE);
        change(admin, answers, "set no number", TOPIC, new ConfigEntry("retention.ms", "long"), OpType.SET);
        change(admin, answers, "set out of range", TOPIC, new ConfigEntry("segment.bytes", "1"), OpType.SET);
        change(admin, answers, "set an enum", TOPIC, new ConfigEntry("compression.type", "zstd"), OpType.SET);
        change(admin, answers, "set a bad enum", TOPIC, new ConfigEntry("compression.type", "rar"), OpType.SET);
        change(admin, answers, "set null", TOPIC, new ConfigEntry("retention.ms", null), OpType.SET);
        change(admin, answers, "set of no topic", "no-such", new ConfigEntry("retention.ms", "1"), OpType.SET);
        change(admin, answers, "set of a bad name", "a b", new ConfigEntry("retention.ms", "1"), OpType.SET);
        change(admin, answers, "delete what was set", TOPIC, new ConfigEntry("retention.ms", ""), OpType.DELETE);
        twice(admin, answers);
        AlterConfigsOptions only = new AlterConfigsOptions().validateOnly(true);
        change(admin, answers, "set, only tried", only, TOPIC, new ConfigEntry("retention.ms", "5"), OpType.SET);
        answers.ask("what is set", () -> changed(topic(admin)));
        for (Type type : List.of(Type.GROUP, Type.CLIENT_METRICS, Type.BROKER_LOGGER)) {
            ConfigResource resource = new ConfigResource(type, type == Type.BROKER_LOGGER ? node : "of-" + type);
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("interval.ms", "1000"), OpType.SET);
            answers.ask("set of " + type, () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change)))
                    .all()
                    .get());
        }
        answers.ask("list resources", () -> admin.listConfigResources().all().get().stream()
                .map(one -> one.type() + " " + one.name())
                .filter(one -> !one.startsWith("TOPIC ") || one.equals("TOPIC " + TOPIC))
                .sorted()
                .toList());
        change(admin, answers, "set an empty list", TOPIC, new ConfigEntry("cleanup.policy", ""), OpType.SET);
        answers.ask("list client metrics", () -> admin.listClientMetricsResources().all().get().size());
    }

    private static void describing(Admin admin, Answers answers, String node) throws Exception {
        Config topic = topic(admin);
        answers.say("settings of a topic", topic.entries().stream().map(ConfigEntry::name).sorted().toList());
        for (ConfigEntry entry : topic.entries()) {
            answers.say("setting " + entry.name(), shown(entry));
        }
        answers.ask("changed settings of a topic", () -> changed(topic(admin)));
        for (Map.Entry<String, ConfigResource> one : Map.of(
                        "no topic", new ConfigResource(Type.TOPIC, "no-such"),
                        "a bad name", new ConfigResource(Type.TOPIC, "a b"),
                        "another node", new ConfigResource(Type.BROKER, "99"),
                        "no node", new ConfigResource(Type.BROKER, "x"),
                        "a group", new ConfigResource(Type.GROUP, "g"),
                        "client metrics", new ConfigResource(Type.CLIENT_METRICS, "m"),
                        "loggers", new ConfigResource(Type.BROKER_LOGGER, node),
                        "all nodes", new ConfigResource(Type.BROKER, ""))
                .entrySet()) {
            answers.ask("settings of " + one.getKey(), () -> admin
                            .describeConfigs(List.of(one.getValue()), new DescribeConfigsOptions().timeoutMs(15_000))
                            .all()
                            .get()
                            .get(one.getValue())
                            .entries()
                            .isEmpty()
                    ? "none"
                    : "some");
        }
        answers.ask("settings of the node that a client needs", () -> {
            ConfigResource resource = new ConfigResource(Type.BROKER, node);
            Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            Map<String, Object> values = new TreeMap<>();
            for (String name : List.of("node.id", "broker.id", "auto.create.topics.enable", "num.partitions",
                    "log.retention.ms", "group.min.session.timeout.ms", "message.max.bytes", "log.message.timestamp.type")) {
                values.put(name, found.get(name) == null ? null : found.get(name).value());
            }
            return values;
        });
    }

    private static Config topic(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(Type.TOPIC, TOPIC);
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeDocumentation(true).includeSynonyms(true);
        return admin.describeConfigs(List.of(resource), all).all().get().get(resource);
    }

    private static Object shown(ConfigEntry entry) {
        return Answers.fields(
                "value", entry.value(),
                "source", entry.source(),
                "type", entry.type(),
                "is_sensitive", entry.isSensitive(),
                "is_read_only", entry.isReadOnly(),
                "has_documentation", entry.documentation() != null && !entry.documentation().isEmpty(),
                "synonyms", entry.synonyms().stream()
                        .map(one -> one.name() + "=" + one.value() + " " + one.source())
                        .toList());
    }

    /** What was set for the resource itself. */
    static Map<String, String> changed(Config config) {
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                found.put(entry.name(), entry.value());
            }
        }
        return found;
    }

    private static void change(Admin admin, Answers answers, String question, String topic, ConfigEntry entry, OpType type)
            throws InterruptedException {
        change(admin, answers, question, new AlterConfigsOptions(), topic, entry, type);
    }

    private static void change(
            Admin admin,
            Answers answers,
            String question,
            AlterConfigsOptions options,
            String topic,
            ConfigEntry entry,
            OpType type)
            throws InterruptedException {
        Map<ConfigResource, Collection<AlterConfigOp>> changes =
                Map.of(new ConfigResource(Type.TOPIC, topic), List.of(new AlterConfigOp(entry, type)));
        answers.ask(question, () -> {
            admin.incrementalAlterConfigs(changes, options).all().get();
            heard(admin);
            return topic.equals(TOPIC) ? changed(topic(admin)) : null;
        });
    }

    /** Wait until the broker has heard of all changes, which only its controller has taken: of a last one, of a topic of
     * its own. */
    private static void heard(Admin admin) throws Exception {
        ConfigResource marker = new ConfigResource(Type.TOPIC, MARKER);
        ConfigEntry last = new ConfigEntry("segment.ms", String.valueOf(LAST.incrementAndGet()));
        admin.incrementalAlterConfigs(Map.of(marker, List.of(new AlterConfigOp(last, OpType.SET)))).all().get();
        Answers.await("the last change", () -> {
            try {
                Config found = admin.describeConfigs(List.of(marker)).all().get().get(marker);
                return found.get(last.name()).value().equals(last.value());
            } catch (InterruptedException | ExecutionException failure) {
                throw new IllegalStateException(failure);
            }
        });
    }

    private static void twice(Admin admin, Answers answers) throws InterruptedException {
        ConfigResource resource = new ConfigResource(Type.TOPIC, TOPIC);
        List<AlterConfigOp> changes = List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "1"), OpType.SET),
                new AlterConfigOp(new ConfigEntry("retention.ms", "2"), OpType.SET));
        answers.ask("set twice", () -> admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get());
        List<AlterConfigOp> halfBad = List.of(
                new AlterConfigOp(new ConfigEntry("retention.bytes", "77"), OpType.SET),
                new AlterConfigOp(new ConfigEntry("no.such", "2"), OpType.SET));
        answers.ask("set one good, one bad", () -> admin.incrementalAlterConfigs(Map.of(resource, halfBad)).all().get());
    }
}
