import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Asks a broker's Admin what tools show of it, each as one JSON line with the case "answer".
 *
 * <p>transactions | producers TOPIC PARTITION | log-dirs | groups | topics | configs | features | quotas | scram | quorum |
 * acls; and these changes: set-config TYPE NAME KEY=VALUE... | set-quota KEY VALUE TYPE=NAME... | set-scram USER MECHANISM
 * ITERATIONS PASSWORD | set-acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION | set-feature NAME LEVEL
 */
final class AdminAnswers {
    private static final List<String> KNOWN = List.of(
            "transactions", "producers", "log-dirs", "groups", "topics", "configs", "features", "quotas", "scram", "quorum",
            "acls", "set-config", "set-quota", "set-scram", "set-acl", "set-feature");

    private final Admin admin;
    private final Report report;
    private final ObjectMapper json = new ObjectMapper();

    AdminAnswers(Admin admin, Report report) {
        this.admin = admin;
        this.report = report;
    }

    static boolean knows(String question) {
        return KNOWN.contains(question);
    }

    void run(String[] fields) throws ExecutionException, InterruptedException {
        switch (fields[0]) {
            case "transactions" -> transactions();
            case "producers" -> producers(new TopicPartition(fields[1], Integer.parseInt(fields[2])));
            case "log-dirs" -> logDirs();
            case "groups" -> groups();
            case "topics" -> topics();
            case "configs" -> configs();
            case "features" -> features();
            case "quotas" -> quotas();
            case "scram" -> scram();
            case "quorum" -> quorum();
            case "acls" -> acls();
            case "set-config" -> setConfig(fields);
            case "set-quota" -> setQuota(fields);
            case "set-scram" -> setScram(fields);
            case "set-acl" -> setAcl(fields);
            default -> setFeature(fields);
        }
    }

    private void answer(Map<String, ?> fields) {
        try {
            report.begin("answer").raw("answer", json.writeValueAsString(fields)).end();
        } catch (JsonProcessingException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new TreeMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    private static List<String> names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().toList();
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? List.of() : nodes.stream().map(Node::id).toList();
    }

    private void transactions() throws ExecutionException, InterruptedException {
        for (TransactionListing listed : admin.listTransactions().all().get()) {
            String id = listed.transactionalId();
            TransactionDescription found =
                    admin.describeTransactions(List.of(id)).description(id).get();
            answer(fields(
                    "transactional_id", id,
                    "state", found.state().toString(),
                    "listed", Arrays.asList(listed.producerId(), listed.state().toString()),
                    "producer_id", found.producerId(),
                    "producer_epoch", found.producerEpoch(),
                    "timeout_ms", found.transactionTimeoutMs(),
                    "start_ms", found.transactionStartTimeMs().orElse(-1),
                    "partitions", names(found.topicPartitions())));
        }
    }

    private void producers(TopicPartition partition) throws ExecutionException, InterruptedException {
        for (ProducerState found : admin.describeProducers(List.of(partition))
                .partitionResult(partition)
                .get()
                .activeProducers()) {
            answer(fields(
                    "producer_id", found.producerId(),
                    "producer_epoch", found.producerEpoch(),
                    "last_sequence", found.lastSequence(),
                    "last_timestamp", found.lastTimestamp(),
                    "coordinator_epoch", found.coordinatorEpoch().orElse(-1),
                    "first_offset", found.currentTransactionStartOffset().orElse(-1)));
        }
    }

    private int nodeId() throws ExecutionException, InterruptedException {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    private void logDirs() throws ExecutionException, InterruptedException {
        int node = nodeId();
        for (Map.Entry<String, LogDirDescription> directory :
                admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).entrySet()) {
            for (Map.Entry<TopicPartition, ReplicaInfo> replica :
                    directory.getValue().replicaInfos().entrySet()) {
                answer(fields(
                        "directory", directory.getKey(),
                        "partition", replica.getKey().toString(),
                        "size", replica.getValue().size(),
                        "offset_lag", replica.getValue().offsetLag(),
                        "is_future", replica.getValue().isFuture()));
            }
        }
    }

    private void groups() throws ExecutionException, InterruptedException {
        List<String> names = admin.listConsumerGroups().all().get().stream()
                .map(listed -> listed.groupId())
                .toList();
        for (String name : names) {
            ConsumerGroupDescription found =
                    admin.describeConsumerGroups(List.of(name)).all().get().get(name);
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
            Map<String, Object> committed = new TreeMap<>();
            offsets.forEach((partition, offset) -> committed.put(
                    partition.toString(),
                    Arrays.asList(offset.offset(), offset.leaderEpoch().orElse(-1), offset.metadata())));
            answer(fields(
                    "group", name,
                    "type", found.type().toString(),
                    "state", found.groupState().toString(),
                    "protocol", found.partitionAssignor(),
                    "epoch", found.groupEpoch().orElse(-1),
                    "members", found.members().stream().map(AdminAnswers::member).toList(),
                    "offsets", committed));
        }
    }

    private static Map<String, Object> member(MemberDescription member) {
        return fields(
                "member_id", member.consumerId(),
                "client_id", member.clientId(),
                "instance_id", member.groupInstanceId().orElse(null),
                "host", member.host(),
                "epoch", member.memberEpoch().orElse(-1),
                "assignment", names(member.assignment().topicPartitions()));
    }

    private void topics() throws ExecutionException, InterruptedException {
        Collection<String> names = admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true))
                .names()
                .get();
        for (TopicDescription found : admin.describeTopics(names).allTopicNames().get().values()) {
            for (TopicPartitionInfo partition : found.partitions()) {
                answer(fields(
                        "topic", found.name(),
                        "id", found.topicId().toString(),
                        "partition", partition.partition(),
                        "leader", partition.leader() == null ? -1 : partition.leader().id(),
                        "replicas", ids(partition.replicas()),
                        "isr", ids(partition.isr()),
                        "elr", ids(partition.elr()),
                        "lastKnownElr", ids(partition.lastKnownElr())));
            }
        }
    }

    /** All settings that were set at run time, of all resources that have some. */
    private void configs() throws ExecutionException, InterruptedException {
        List<ConfigResource> resources = new ArrayList<>();
        for (String topic : admin.listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true))
                .names()
                .get()) {
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, topic));
        }
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(nodeId())));
        for (ConfigResource.Type type : List.of(ConfigResource.Type.CLIENT_METRICS, ConfigResource.Type.GROUP)) {
            resources.addAll(admin.listConfigResources(
                            java.util.Set.of(type), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                    .all()
                    .get());
        }
        for (Map.Entry<ConfigResource, Config> found :
                admin.describeConfigs(resources).all().get().entrySet()) {
            for (ConfigEntry entry : found.getValue().entries()) {
                if (entry.source().name().startsWith("DYNAMIC") && isOwn(found.getKey(), entry)) {
                    answer(fields(
                            "type", found.getKey().type().name(),
                            "name", found.getKey().name(),
                            "key", entry.name(),
                            "value", entry.value(),
                            "is_sensitive", entry.isSensitive()));
                }
            }
        }
    }

    /** Whether an entry was set for this very resource, and not for all brokers. */
    private static boolean isOwn(ConfigResource resource, ConfigEntry entry) {
        ConfigEntry.ConfigSource ofAll = ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
        ConfigEntry.ConfigSource ofOne = ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG;
        return switch (resource.type()) {
            case BROKER -> entry.source() == (resource.isDefault() ? ofAll : ofOne);
            default -> entry.source() != ofAll && entry.source() != ofOne;
        };
    }

    private void features() throws ExecutionException, InterruptedException {
        FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
        for (Map.Entry<String, FinalizedVersionRange> feature :
                found.finalizedFeatures().entrySet()) {
            answer(fields("name", feature.getKey(), "level", feature.getValue().maxVersionLevel()));
        }
    }

    private void quotas() throws ExecutionException, InterruptedException {
        Map<ClientQuotaEntity, Map<String, Double>> found =
                admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        found.forEach((entity, values) -> answer(fields("entity", new TreeMap<>(entity.entries()), "values", values)));
    }

    private void scram() throws ExecutionException, InterruptedException {
        admin.describeUserScramCredentials().all().get().forEach((user, found) -> {
            for (ScramCredentialInfo info : found.credentialInfos()) {
                answer(fields(
                        "user", user, "mechanism", info.mechanism().mechanismName(), "iterations", info.iterations()));
            }
        });
    }

    private void quorum() throws ExecutionException, InterruptedException {
        QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
        answer(fields(
                "leader", found.leaderId(),
                "epoch", found.leaderEpoch(),
                "high_watermark", found.highWatermark(),
                "voters", found.voters().stream()
                        .map(voter -> fields(
                                "id", voter.replicaId(),
                                "directory", voter.replicaDirectoryId().toString(),
                                "log_end_offset", voter.logEndOffset()))
                        .toList(),
                "observers", found.observers().size()));
    }

    private void acls() throws ExecutionException, InterruptedException {
        for (AclBinding found : admin.describeAcls(AclBindingFilter.ANY).values().get()) {
            answer(fields(
                    "resourceType", found.pattern().resourceType().code(),
                    "resourceName", found.pattern().name(),
                    "patternType", found.pattern().patternType().code(),
                    "principal", found.entry().principal(),
                    "host", found.entry().host(),
                    "operation", found.entry().operation().code(),
                    "permissionType", found.entry().permissionType().code()));
        }
    }

    private void setConfig(String[] fields) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.valueOf(fields[1]), fields[2]);
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 3; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            changes.add(new AlterConfigOp(new ConfigEntry(pair[0], pair[1]), AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    private void setQuota(String[] fields) throws ExecutionException, InterruptedException {
        Map<String, String> entity = new TreeMap<>();
        for (int i = 3; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            entity.put(pair[0], pair[1].equals("<default>") ? null : pair[1]);
        }
        ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op(fields[1], Double.valueOf(fields[2]));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(entity), List.of(change))))
                .all()
                .get();
    }

    private void setScram(String[] fields) throws ExecutionException, InterruptedException {
        ScramCredentialInfo info =
                new ScramCredentialInfo(ScramMechanism.fromMechanismName(fields[2]), Integer.parseInt(fields[3]));
        byte[] password = fields[4].getBytes(StandardCharsets.UTF_8);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(fields[1], info, password)))
                .all()
                .get();
    }

    private void setAcl(String[] fields) throws ExecutionException, InterruptedException {
        ResourcePattern pattern = new ResourcePattern(
                ResourceType.valueOf(fields[1]), fields[2], PatternType.valueOf(fields[3]));
        AccessControlEntry entry = new AccessControlEntry(
                fields[4], fields[5], AclOperation.valueOf(fields[6]), AclPermissionType.valueOf(fields[7]));
        admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
    }

    private void setFeature(String[] fields) throws ExecutionException, InterruptedException {
        FeatureUpdate update =
                new FeatureUpdate(Short.parseShort(fields[2]), FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE);
        admin.updateFeatures(Map.of(fields[1], update), new UpdateFeaturesOptions()).all().get();
    }
}
