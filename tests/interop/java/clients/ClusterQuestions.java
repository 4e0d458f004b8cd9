import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The cluster, its directories, features and producers; groups without members; and what only a cluster has. */
final class ClusterQuestions {
    private static final String TOPIC = "of-cluster";
    private static final TopicPartition T0 = new TopicPartition(TOPIC, 0);
    private static final TopicPartition UNKNOWN = new TopicPartition("no-such", 0);

    private ClusterQuestions() {}

    static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? null : nodes.stream().map(Node::id).toList();
    }

    static void run(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        TopicQuestions.make(admin, new NewTopic(TOPIC, 2, (short) 1));
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        cluster(servers, admin, answers);
        producers(servers, admin, answers);
        logDirs(admin, answers, node);
        groups(admin, answers);
        transactions(admin, answers);
        ofClusters(admin, answers, node);
    }

    private static void cluster(JavaClients.Servers servers, Admin admin, Answers answers) throws InterruptedException {
        answers.ask("cluster", () -> {
            DescribeClusterResult found =
                    admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            Node node = found.nodes().get().iterator().next();
            return Answers.fields(
                    "cluster_id", found.clusterId().get(),
                    "nodes", ids(List.copyOf(found.nodes().get())),
                    "controller", found.controller().get().id(),
                    "is_at_the_address", (node.host() + ":" + node.port()).equals(servers.address()),
                    "rack", node.rack(),
                    "is_fenced", node.isFenced(),
                    "operations", found.authorizedOperations().get().stream().map(Enum::name).sorted().toList());
        });
        answers.ask("fenced nodes too", () -> admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true))
                .nodes()
                .get()
                .size());
        answers.ask("features", () -> {
            FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
            Map<String, Object> levels = new TreeMap<>();
            found.finalizedFeatures().forEach((name, range) -> levels.put("finalized " + name, range.maxVersionLevel()));
            found.supportedFeatures().forEach((name, range) ->
                    levels.put("supported " + name, range.minVersion() + " to " + range.maxVersion()));
            return levels;
        });
    }

    private static void producers(JavaClients.Servers servers, Admin admin, Answers answers) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(servers.with(), bytes, bytes)) {
            for (int n = 0; n < 3; n++) {
                producer.send(new ProducerRecord<>(TOPIC, 0, 1_700_000_000_000L, null, new byte[] {1})).get();
            }
            answers.ask("producers", () -> admin.describeProducers(List.of(T0)).partitionResult(T0).get().activeProducers()
                    .stream()
                    .map(one -> Answers.fields(
                            "epoch", one.producerEpoch(),
                            "sequence", one.lastSequence(),
                            "timestamp", one.lastTimestamp(),
                            "coordinator_epoch", one.coordinatorEpoch(),
                            "start", one.currentTransactionStartOffset()))
                    .toList());
        }
        answers.ask("producers of no topic", () -> admin
                .describeProducers(List.of(UNKNOWN), new DescribeProducersOptions().timeoutMs(15_000))
                .all()
                .get());
    }

    private static void logDirs(Admin admin, Answers answers, int node) throws InterruptedException {
        answers.ask("log dirs", () -> {
            Map<String, LogDirDescription> found =
                    admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
            LogDirDescription one = found.values().iterator().next();
            return Answers.fields(
                    "directories", found.size(),
                    "is_absolute", found.keySet().iterator().next().startsWith("/"),
                    "error", one.error(),
                    "has_total", one.totalBytes().isPresent(),
                    "has_usable", one.usableBytes().isPresent(),
                    "size", one.replicaInfos().get(T0).size(),
                    "lag", one.replicaInfos().get(T0).offsetLag(),
                    "is_future", one.replicaInfos().get(T0).isFuture());
        });
        answers.ask("replicas' log dirs", () -> {
            TopicPartitionReplica replica = new TopicPartitionReplica(TOPIC, 0, node);
            var found = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
            return Answers.fields("has_one", found.getCurrentReplicaLogDir() != null, "lag", found.getCurrentReplicaOffsetLag());
        });
    }

    private static void groups(Admin admin, Answers answers) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(
                T0, new OffsetAndMetadata(2, Optional.of(0), "by hand"), UNKNOWN, new OffsetAndMetadata(1));
        answers.ask("alter offsets of a new group", () -> TopicQuestions.each(
                Map.of(T0, admin.alterConsumerGroupOffsets("by-hand", offsets).partitionResult(T0),
                        UNKNOWN, admin.alterConsumerGroupOffsets("by-hand", offsets).partitionResult(UNKNOWN)),
                String::valueOf));
        answers.ask("offsets", () -> admin.listConsumerGroupOffsets("by-hand").partitionsToOffsetAndMetadata().get().toString());
        answers.ask("offsets of no group", () ->
                admin.listConsumerGroupOffsets("no-such").partitionsToOffsetAndMetadata().get().toString());
        answers.ask("describe groups", () -> {
            Map<String, Object> found = new TreeMap<>();
            for (Map.Entry<String, ?> one : TopicQuestions.each(
                            admin.describeConsumerGroups(List.of("by-hand", "no-such")).describedGroups(),
                            group -> Groups.shown((org.apache.kafka.clients.admin.ConsumerGroupDescription) group))
                    .entrySet()) {
                found.put(one.getKey(), one.getValue());
            }
            return found;
        });
        answers.ask("describe classic groups", () -> TopicQuestions.each(
                admin.describeClassicGroups(List.of("by-hand", "no-such")).describedGroups(),
                one -> ((org.apache.kafka.clients.admin.ClassicGroupDescription) one).state().toString()));
        answers.ask("describe share groups", () -> TopicQuestions.each(
                admin.describeShareGroups(List.of("by-hand")).describedGroups(), one -> "described"));
        answers.ask("describe streams groups", () -> TopicQuestions.each(
                admin.describeStreamsGroups(List.of("by-hand")).describedGroups(), one -> "described"));
        answers.ask("list groups", () -> admin.listGroups().all().get().stream()
                .map(one -> one.groupId() + " " + one.type() + " " + one.protocol() + " " + one.groupState())
                .sorted()
                .toList());
        answers.ask("list groups of the new protocol", () -> admin
                .listGroups(new ListGroupsOptions().withTypes(java.util.Set.of(org.apache.kafka.common.GroupType.CONSUMER)))
                .all()
                .get()
                .size());
        answers.ask("list empty groups", () -> admin
                .listGroups(new ListGroupsOptions().inGroupStates(java.util.Set.of(org.apache.kafka.common.GroupState.EMPTY)))
                .all()
                .get()
                .size());
        answers.ask("delete offsets", () -> TopicQuestions.each(
                Map.of(T0, admin.deleteConsumerGroupOffsets("by-hand", java.util.Set.of(T0)).partitionResult(T0)),
                String::valueOf));
        answers.ask("delete offsets of no group", () -> admin
                .deleteConsumerGroupOffsets("no-such", java.util.Set.of(T0)).all().get());
        answers.ask("delete groups", () -> TopicQuestions.each(
                admin.deleteConsumerGroups(List.of("by-hand", "no-such")).deletedGroups(), String::valueOf));
        answers.ask("remove members of no group", () -> admin
                .removeMembersFromConsumerGroup("no-such",
                        new org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions(
                                List.of(new org.apache.kafka.clients.admin.MemberToRemove("i"))))
                .all()
                .get());
    }

    private static void transactions(Admin admin, Answers answers) throws InterruptedException {
        answers.ask("describe no transaction", () -> admin.describeTransactions(List.of("no-such")).all().get());
        answers.ask("list transactions of a producer", () -> admin
                .listTransactions(new ListTransactionsOptions().filterProducerIds(List.of(-5L))).all().get().size());
        answers.ask("list transactions by pattern", () -> admin
                .listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern("no-.*")).all().get().size());
        answers.ask("list transactions by a bad pattern", () -> admin
                .listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern("(")).all().get().size());
        answers.ask("fence producers", () -> admin.fenceProducers(List.of("nobody")).epochId("nobody").get());
        answers.ask("fence them again", () -> admin.fenceProducers(List.of("nobody")).epochId("nobody").get());
        answers.ask("abort no transaction", () -> admin
                .abortTransaction(new AbortTransactionSpec(T0, 12345, (short) 0, 0)).all().get());
    }

    /** What one node has no use for. */
    private static void ofClusters(Admin admin, Answers answers, int node) throws InterruptedException {
        java.util.Set<TopicPartition> both = java.util.Set.of(T0, UNKNOWN);
        answers.ask("elect leaders", () -> each(admin.electLeaders(ElectionType.PREFERRED, both).partitions().get()));
        answers.ask("elect unclean leaders", () -> each(admin.electLeaders(ElectionType.UNCLEAN, both).partitions().get()));
        answers.ask("reassign", () -> TopicQuestions.each(
                admin.alterPartitionReassignments(Map.of(
                                T0, Optional.of(new NewPartitionReassignment(List.of(node))),
                                UNKNOWN, Optional.of(new NewPartitionReassignment(List.of(node)))))
                        .values(),
                String::valueOf));
        answers.ask("reassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
        answers.ask("move to a directory", () -> TopicQuestions.each(
                admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(TOPIC, 0, node), "/no/such")).values(),
                String::valueOf));
        answers.ask("ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        answers.ask("create ACLs", () -> admin.createAcls(List.of(new AclBinding(
                        new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
                        new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW))))
                .all()
                .get());
        answers.ask("delete ACLs", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get().size());
        answers.ask("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        answers.ask("set a quota", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                        new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "c")),
                        List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9)))))
                .all()
                .get());
        answers.ask("SCRAM users", () -> admin.describeUserScramCredentials().all().get().size());
        answers.ask("set a SCRAM user", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                        "u", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret")))
                .all()
                .get());
        answers.ask("delegation tokens", () -> admin.describeDelegationToken().delegationTokens().get().size());
        answers.ask("create a delegation token", () -> admin.createDelegationToken().delegationToken().get());
        answers.ask("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        answers.ask("set a feature", () -> admin.updateFeatures(
                        Map.of("no.such", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
                        new org.apache.kafka.clients.admin.UpdateFeaturesOptions())
                .all()
                .get());
        answers.ask("unregister a node", () -> admin.unregisterBroker(99).all().get());
    }

    private static Map<String, Object> each(Map<TopicPartition, Optional<Throwable>> errors) {
        Map<String, Object> found = new TreeMap<>();
        errors.forEach((partition, error) ->
                found.put(partition.toString(), error.map(Answers::nameOf).orElse(null)));
        return found;
    }
}
