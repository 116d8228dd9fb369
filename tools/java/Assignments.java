import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads histories of groups, writes what Kafka's own assignors make of each round: the members' bytes as they are sent, and who got
 * what. What a member got is what it owns in its next round, one generation later.
 */
public class Assignments {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode results = JSON.createArrayNode();
        for (JsonNode history : JSON.readTree(System.in)) {
            for (String name : List.of("range", "roundrobin", "sticky", "cooperative-sticky")) {
                ObjectNode result = results.addObject();
                result.put("assignor", name);
                result.set("rounds", roundsOf(name, history));
            }
        }
        System.out.println(JSON.writeValueAsString(results));
    }

    static ArrayNode roundsOf(String name, JsonNode history) {
        ArrayNode rounds = JSON.createArrayNode();
        Map<String, List<TopicPartition>> owned = new HashMap<>();
        int generation = 1;
        for (JsonNode round : history) {
            ObjectNode told = rounds.addObject();
            Map<String, Subscription> members = new TreeMap<>();
            ObjectNode bytes = told.putObject("members");
            for (JsonNode member : round.get("members")) {
                String id = member.get("id").asText();
                Subscription subscription = subscriptionOf(name, member, owned.get(id), generation);
                members.put(id, subscription);
                ObjectNode entry = bytes.putObject(id);
                ByteBuffer encoded = ConsumerProtocol.serializeSubscription(subscription);
                entry.put("subscription", HexFormat.of().formatHex(encoded.array(), 0, encoded.limit()));
                if (member.hasNonNull("instance")) {
                    entry.put("instance", member.get("instance").asText());
                }
            }
            Map<String, Integer> counts = new TreeMap<>();
            round.get("topics").fields().forEachRemaining(topic -> counts.put(topic.getKey(), topic.getValue().asInt()));
            told.set("topics", round.get("topics"));
            owned = assignorOf(name).assign(counts, members);
            ObjectNode given = told.putObject("assigned");
            new TreeMap<>(owned).forEach((id, partitions) -> {
                ArrayNode list = given.putArray(id);
                for (TopicPartition partition : partitions) {
                    list.add(partition.topic() + "-" + partition.partition());
                }
            });
            generation++;
        }
        return rounds;
    }

    static Subscription subscriptionOf(String name, JsonNode member, List<TopicPartition> had, int generation) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        boolean isNew = had == null || member.path("fresh").asBoolean();
        List<TopicPartition> last = isNew ? List.of() : had;
        int lastGeneration = isNew ? -1 : generation - 1;
        ByteBuffer userData = null;
        boolean keeps = name.equals("cooperative-sticky");
        if (name.endsWith("sticky")) {
            AbstractPartitionAssignor assignor = assignorOf(name);
            if (!isNew) {
                assignor.onAssignment(new Assignment(last), new ConsumerGroupMetadata("group", lastGeneration, "id", Optional.empty()));
            }
            userData = assignor.subscriptionUserData(new java.util.HashSet<>(topics));
        }
        Subscription subscription = new Subscription(topics, userData, keeps ? last : List.of(), lastGeneration, Optional.empty());
        if (member.hasNonNull("instance")) {
            subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
        }
        return subscription;
    }

    static AbstractPartitionAssignor assignorOf(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }
}
