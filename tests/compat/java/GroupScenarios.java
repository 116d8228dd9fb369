import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Java consumers that share a group, each polled by a thread of its own. Plain JSON values in and out. */
public final class GroupScenarios {
    private static final Duration ANSWER_MAX = Duration.ofSeconds(120);

    /** One consumer and its thread; everything it tells is guarded by its own lock. */
    private static final class Member implements ConsumerRebalanceListener, AutoCloseable {
        private final KafkaConsumer<String, String> consumer;
        private final TreeSet<String> owned = new TreeSet<>();
        private final List<String> values = new ArrayList<>();
        private final List<List<String>> revoked = new ArrayList<>();
        private final Thread thread = new Thread(this::run);
        private boolean stopped;
        private String failure;

        Member(Map<String, Object> arguments, int number) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", arguments.get("bootstrap"));
            properties.putAll((Map<?, ?>) arguments.getOrDefault("settings", Map.of()));
            properties.put("group.id", arguments.get("group"));
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.putIfAbsent("heartbeat.interval.ms", "100");
            properties.putIfAbsent("session.timeout.ms", "60000");
            if (properties.containsKey("group.instance.id")) {
                properties.put("group.instance.id", properties.get("group.instance.id") + "-" + number);
            }
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            @SuppressWarnings("unchecked")
            List<String> topics = (List<String>) arguments.get("topics");
            consumer.subscribe(topics, this);
            thread.start();
        }

        private void run() {
            try {
                while (!isStopped()) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        add(record.value());
                    }
                }
                consumer.commitSync();
            } catch (RuntimeException thrown) {
                fail(thrown);
            } finally {
                consumer.close();
            }
        }

        private synchronized boolean isStopped() {
            return stopped;
        }

        private synchronized void add(String value) {
            values.add(value);
        }

        private synchronized void fail(RuntimeException thrown) {
            failure = ClientHost.nameOf(thrown);
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owned.add(partition.toString()));
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            List<String> gone = partitions.stream().map(TopicPartition::toString).sorted().toList();
            owned.removeAll(gone);
            revoked.add(gone);
        }

        synchronized int ownedCount() {
            return owned.size();
        }

        synchronized int readCount() {
            return values.size();
        }

        synchronized Map<String, Object> told() {
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("owned", List.copyOf(owned));
            told.put("values", List.copyOf(values));
            told.put("revoked", List.copyOf(revoked));
            told.put("failure", failure);
            return told;
        }

        @Override
        public void close() {
            synchronized (this) {
                stopped = true;
            }
            try {
                thread.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /**
     * `members` consumers, each started once those before it own all `partitions` between them. Tells what each owned
     * when all were settled and `count` records were read.
     */
    public static Object share(Map<String, Object> arguments) throws Exception {
        int members = (int) arguments.get("members");
        int partitions = (int) arguments.get("partitions");
        int count = (int) arguments.get("count");
        List<Member> joined = new ArrayList<>();
        try {
            while (joined.size() < members) {
                joined.add(new Member(arguments, joined.size()));
                int fair = partitions / joined.size();
                await("settled", () -> joined.stream().mapToInt(Member::ownedCount).sum() == partitions
                    && joined.stream().allMatch(member -> member.ownedCount() >= fair));
            }
            await("all records", () -> joined.stream().mapToInt(Member::readCount).sum() >= count);
            return joined.stream().map(Member::told).toList();
        } finally {
            joined.forEach(Member::close);
        }
    }

    private static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + ANSWER_MAX.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not " + what + " in time");
            }
            Thread.sleep(10);
        }
    }
}
