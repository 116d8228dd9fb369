import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;

/** The Java admin client, one method a call. Its strictness about nulls, versions and per-item errors is the point. */
public final class AdminScenarios {
    private interface Work {
        Object with(Admin admin) throws Exception;
    }

    private static Object admin(Map<String, Object> arguments, Work work) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.put("request.timeout.ms", 60_000);
        settings.put("default.api.timeout.ms", 120_000);
        try (Admin admin = Admin.create(settings)) {
            return work.with(admin);
        }
    }

    @SuppressWarnings("unchecked")
    public static Object createTopic(Map<String, Object> arguments) throws Exception {
        String topic = topic(arguments);
        NewTopic wanted = new NewTopic(topic, Optional.ofNullable((Integer) arguments.get("partitions")),
                Optional.<Short>empty()).configs((Map<String, String>) arguments.getOrDefault("configs", Map.of()));
        boolean validateOnly = Boolean.TRUE.equals(arguments.get("validate only"));
        return admin(arguments, admin -> {
            CreateTopicsResult made = admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(validateOnly));
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("partitions", made.numPartitions(topic).get());
            result.put("replication factor", made.replicationFactor(topic).get());
            result.put("configs", values(made.config(topic).get()));
            result.put("topic id", made.topicId(topic).get().toString());
            return result;
        });
    }

    public static Object listTopics(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> new ArrayList<>(admin.listTopics().names().get()));
    }

    public static Object describeTopic(Map<String, Object> arguments) throws Exception {
        String topic = topic(arguments);
        return admin(arguments, admin -> {
            DescribeTopicsOptions options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            TopicDescription byName = admin.describeTopics(List.of(topic), options).allTopicNames().get().get(topic);
            Uuid id = byName.topicId();
            TopicDescription byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("topic id", id.toString());
            result.put("internal", byName.isInternal());
            result.put("same by id", byId.name().equals(topic));
            result.put("authorized operations", byName.authorizedOperations().size());
            List<Object> partitions = new ArrayList<>();
            for (TopicPartitionInfo info : byName.partitions()) {
                Map<String, Object> part = new LinkedHashMap<>();
                part.put("partition", info.partition());
                part.put("leader", info.leader().id());
                part.put("replicas", ids(info.replicas()));
                part.put("isr", ids(info.isr()));
                part.put("elr", ids(info.elr()));
                partitions.add(part);
            }
            result.put("partitions", partitions);
            return result;
        });
    }

    public static Object deleteTopic(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> {
            if (arguments.containsKey("topic id")) {
                Uuid id = Uuid.fromString((String) arguments.get("topic id"));
                admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            } else {
                admin.deleteTopics(List.of(topic(arguments))).all().get();
            }
            return "deleted";
        });
    }

    public static Object createPartitions(Map<String, Object> arguments) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo((int) arguments.get("total"));
        return admin(arguments, admin -> {
            admin.createPartitions(Map.of(topic(arguments), wanted)).all().get();
            return "grown";
        });
    }

    public static Object describeConfigs(Map<String, Object> arguments) throws Exception {
        ConfigResource resource = resource(arguments);
        return admin(arguments, admin -> {
            DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            Config config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
            Map<String, Object> result = new TreeMap<>();
            for (ConfigEntry entry : config.entries()) {
                Map<String, Object> described = new LinkedHashMap<>();
                described.put("value", entry.value());
                described.put("source", entry.source().name());
                described.put("type", entry.type().name());
                described.put("read only", entry.isReadOnly());
                described.put("sensitive", entry.isSensitive());
                described.put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
                List<Object> synonyms = new ArrayList<>();
                for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                    synonyms.add(synonym.name() + "=" + synonym.value() + " " + synonym.source().name());
                }
                described.put("synonyms", synonyms);
                result.put(entry.name(), described);
            }
            return result;
        });
    }

    /** `changes` is a list of [operation, name, value]. */
    @SuppressWarnings("unchecked")
    public static Object alterConfigs(Map<String, Object> arguments) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        for (List<String> change : (List<List<String>>) arguments.get("changes")) {
            ConfigEntry entry = new ConfigEntry(change.get(1), change.size() > 2 ? change.get(2) : null);
            operations.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(change.get(0))));
        }
        return admin(arguments, admin -> {
            admin.incrementalAlterConfigs(Map.of(resource(arguments), operations)).all().get();
            return "altered";
        });
    }

    public static Object listConfigResources(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> {
            List<Object> listed = new ArrayList<>();
            for (ConfigResource resource : admin.listConfigResources().all().get()) {
                listed.add(List.of(resource.type().name(), resource.name()));
            }
            return listed;
        });
    }

    public static Object describeCluster(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> {
            DescribeClusterOptions options = new DescribeClusterOptions().includeAuthorizedOperations(true);
            DescribeClusterResult cluster = admin.describeCluster(options);
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("cluster id", cluster.clusterId().get());
            result.put("controller", cluster.controller().get().id());
            result.put("authorized operations", cluster.authorizedOperations().get().size());
            List<Object> nodes = new ArrayList<>();
            for (Node node : cluster.nodes().get()) {
                nodes.add(List.of(node.id(), node.host() + ":" + node.port(), node.isFenced()));
            }
            result.put("nodes", nodes);
            return result;
        });
    }

    public static Object describeLogDirs(Map<String, Object> arguments) throws Exception {
        int broker = (int) arguments.get("broker");
        TopicPartition partition = partition(arguments);
        return admin(arguments, admin -> {
            Map<String, Object> result = new LinkedHashMap<>();
            for (Map.Entry<String, LogDirDescription> one : admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).entrySet()) {
                LogDirDescription described = one.getValue();
                Map<String, Object> directory = new LinkedHashMap<>();
                directory.put("error", described.error() == null ? null : ClientHost.nameOf(described.error()));
                directory.put("total", described.totalBytes().orElse(-1));
                directory.put("usable", described.usableBytes().orElse(-1));
                directory.put("size", described.replicaInfos().containsKey(partition) ? described.replicaInfos().get(partition).size() : -1);
                result.put(one.getKey(), directory);
            }
            return result;
        });
    }

    public static Object listOffsets(Map<String, Object> arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("max timestamp", OffsetSpec.maxTimestamp());
        specs.put("earliest local", OffsetSpec.earliestLocal());
        specs.put("latest tiered", OffsetSpec.latestTiered());
        specs.put("earliest pending upload", OffsetSpec.earliestPendingUpload());
        specs.put("by time", OffsetSpec.forTimestamp(((Number) arguments.get("time")).longValue()));
        return admin(arguments, admin -> {
            Map<String, Object> result = new LinkedHashMap<>();
            for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
                ListOffsetsResultInfo info = admin.listOffsets(Map.of(partition, spec.getValue())).partitionResult(partition).get();
                result.put(spec.getKey(), List.of(info.offset(), info.timestamp(), info.leaderEpoch().orElse(-1)));
            }
            return result;
        });
    }

    public static Object deleteRecords(Map<String, Object> arguments) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(((Number) arguments.get("offset")).longValue());
        TopicPartition partition = partition(arguments);
        return admin(arguments, admin ->
                admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark());
    }

    public static Object electLeaders(Map<String, Object> arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        return admin(arguments, admin -> {
            Map<String, Object> result = new LinkedHashMap<>();
            for (ElectionType kind : ElectionType.values()) {
                Optional<Throwable> refused = admin.electLeaders(kind, Set.of(partition)).partitions().get().get(partition);
                result.put(kind.name(), refused.map(ClientHost::nameOf).orElse("elected"));
            }
            return result;
        });
    }

    public static Object describeProducers(Map<String, Object> arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        return admin(arguments, admin -> {
            List<Object> described = new ArrayList<>();
            for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
                described.add(List.of(state.producerEpoch(), state.lastSequence(), state.lastTimestamp(),
                        state.currentTransactionStartOffset().isPresent()));
            }
            return described;
        });
    }

    public static Object describeFeatures(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> {
            FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
            Map<String, Object> result = new LinkedHashMap<>();
            Map<String, Object> finalized = new TreeMap<>();
            features.finalizedFeatures().forEach((name, range) -> finalized.put(name, (int) range.maxVersionLevel()));
            result.put("finalized", finalized);
            result.put("supported", new ArrayList<>(features.supportedFeatures().keySet()));
            return result;
        });
    }

    public static Object updateFeature(Map<String, Object> arguments) throws Exception {
        FeatureUpdate update = new FeatureUpdate(((Number) arguments.get("level")).shortValue(), FeatureUpdate.UpgradeType.UPGRADE);
        return admin(arguments, admin -> {
            UpdateFeaturesOptions options = new UpdateFeaturesOptions().validateOnly(true);
            admin.updateFeatures(Map.of((String) arguments.get("feature"), update), options).all().get();
            return "would be updated";
        });
    }

    public static Object describeQuorum(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return Map.of("leader", quorum.leaderId(), "voters", quorum.voters().size());
        });
    }

    /** Moves a partition to `brokers`, then tells what is still moving. */
    @SuppressWarnings("unchecked")
    public static Object reassign(Map<String, Object> arguments) throws Exception {
        NewPartitionReassignment wanted = new NewPartitionReassignment((List<Integer>) arguments.get("brokers"));
        return admin(arguments, admin -> {
            admin.alterPartitionReassignments(Map.of(partition(arguments), Optional.of(wanted))).all().get();
            return admin.listPartitionReassignments().reassignments().get().size();
        });
    }

    public static Object describeAcls(Map<String, Object> arguments) throws Exception {
        return admin(arguments, admin -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
    }

    private static String topic(Map<String, Object> arguments) {
        return (String) arguments.get("topic");
    }

    private static TopicPartition partition(Map<String, Object> arguments) {
        return new TopicPartition(topic(arguments), (int) arguments.getOrDefault("partition", 0));
    }

    private static ConfigResource resource(Map<String, Object> arguments) {
        ConfigResource.Type type = ConfigResource.Type.valueOf((String) arguments.get("type"));
        return new ConfigResource(type, (String) arguments.get("name"));
    }

    private static List<Integer> ids(List<Node> nodes) {
        List<Integer> ids = new ArrayList<>();
        if (nodes != null) {
            nodes.forEach(node -> ids.add(node.id()));
        }
        return ids;
    }

    private static Map<String, Object> values(Config config) {
        Map<String, Object> values = new TreeMap<>();
        config.entries().forEach(entry -> values.put(entry.name(), entry.value()));
        return values;
    }
}
