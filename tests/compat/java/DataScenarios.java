import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java producer and consumer, the consumer by assign only. Arguments and results are plain JSON values. */
public final class DataScenarios {
    private static final Duration ANSWER_MAX = Duration.ofSeconds(120);

    /** Sends records {key, value, partition, timestamp, headers} and tells {partition, offset, timestamp} of each. */
    public static Object produce(Map<String, Object> arguments) throws Exception {
        String topic = (String) arguments.get("topic");
        List<Object> placed = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(arguments), new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Map<String, Object> record : records(arguments)) {
                sent.add(producer.send(recordOf(topic, record)));
                if (Boolean.TRUE.equals(arguments.get("one by one"))) {
                    placeOf(sent.get(sent.size() - 1));
                }
            }
            for (Future<RecordMetadata> future : sent) {
                placed.add(placeOf(future));
            }
        }
        return placed;
    }

    private static Object placeOf(Future<RecordMetadata> sent) throws InterruptedException {
        try {
            RecordMetadata metadata = sent.get();
            return List.of(metadata.partition(), metadata.offset(), metadata.timestamp());
        } catch (ExecutionException refused) {
            return ClientHost.nameOf(refused);
        }
    }

    /** Reads `count` records of a partition from `start` (or from the end less `back`). */
    public static Object consume(Map<String, Object> arguments) {
        TopicPartition partition = partition(arguments);
        int count = (int) arguments.get("count");
        List<Object> read = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(arguments)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, ((Number) arguments.getOrDefault("start", 0)).longValue());
            long deadline = System.nanoTime() + ANSWER_MAX.toNanos();
            while (read.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    read.add(describe(record));
                }
            }
        }
        return read;
    }

    /** All that a consumer can ask about a partition without reading it. */
    public static Object lookUp(Map<String, Object> arguments) {
        TopicPartition partition = partition(arguments);
        Map<String, Object> found = new LinkedHashMap<>();
        try (KafkaConsumer<String, String> consumer = consumer(arguments)) {
            consumer.assign(List.of(partition));
            found.put("begin", consumer.beginningOffsets(Set.of(partition)).get(partition));
            found.put("end", consumer.endOffsets(Set.of(partition)).get(partition));
            consumer.seekToEnd(List.of(partition));
            found.put("position at end", consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            found.put("position at begin", consumer.position(partition));
            long time = ((Number) arguments.get("time")).longValue();
            OffsetAndTimestamp byTime = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
            found.put("by time", byTime == null ? null : List.of(byTime.offset(), byTime.timestamp()));
            List<Object> partitions = new ArrayList<>();
            for (PartitionInfo info : consumer.partitionsFor(partition.topic())) {
                partitions.add(List.of(info.partition(), info.leader().id(), info.replicas().length,
                        info.inSyncReplicas().length, info.offlineReplicas().length));
            }
            found.put("partitions", partitions);
            found.put("listed", consumer.listTopics().containsKey(partition.topic()));
        }
        return found;
    }

    private static Map<String, Object> describe(ConsumerRecord<String, String> record) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("offset", record.offset());
        described.put("key", record.key());
        described.put("value", record.value());
        described.put("timestamp", record.timestamp());
        described.put("timestamp type", record.timestampType().name);
        described.put("leader epoch", record.leaderEpoch().orElse(-1));
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            String value = header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
            headers.add(value == null ? List.of(header.key()) : List.of(header.key(), value));
        }
        described.put("headers", headers);
        return described;
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<String, String> recordOf(String topic, Map<String, Object> record) {
        Number timestamp = (Number) record.get("timestamp");
        ProducerRecord<String, String> made = new ProducerRecord<>(topic, (Integer) record.get("partition"),
                timestamp == null ? null : timestamp.longValue(), (String) record.get("key"), (String) record.get("value"));
        for (List<String> header : (List<List<String>>) record.getOrDefault("headers", List.of())) {
            byte[] value = header.size() > 1 ? header.get(1).getBytes(StandardCharsets.UTF_8) : null;
            made.headers().add(header.get(0), value);
        }
        return made;
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> records(Map<String, Object> arguments) {
        return (List<Map<String, Object>>) arguments.get("records");
    }

    private static TopicPartition partition(Map<String, Object> arguments) {
        return new TopicPartition((String) arguments.get("topic"), (int) arguments.getOrDefault("partition", 0));
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> arguments) {
        return new KafkaConsumer<>(settings(arguments), new StringDeserializer(), new StringDeserializer());
    }

    @SuppressWarnings("unchecked")
    private static Properties settings(Map<String, Object> arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap"));
        settings.putAll((Map<String, Object>) arguments.getOrDefault("settings", Map.of()));
        return settings;
    }
}
