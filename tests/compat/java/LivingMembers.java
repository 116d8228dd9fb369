import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Java consumers of any protocol that live across calls, each polled by a thread of its own. */
public final class LivingMembers {
    private static final Map<String, Member> MEMBERS = new TreeMap<>();

    /** Held while anybody's share changes or all are looked at: one partition must not be seen with two owners. */
    private static final Object SHARES = new Object();

    /** One consumer and its thread; what it tells is guarded by its own lock, taken after that of the shares. */
    private static final class Member implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;
        private final TreeSet<String> owned = new TreeSet<>();
        private final List<String> values = new ArrayList<>();
        private final Thread thread = new Thread(this::run);
        private boolean stopped;
        private String failure;

        Member(Map<String, Object> arguments) {
            Properties properties = new Properties();
            properties.put("auto.offset.reset", "earliest");
            properties.put("metadata.max.age.ms", "500");
            properties.put("fetch.max.wait.ms", "50");
            properties.put("bootstrap.servers", arguments.get("bootstrap"));
            properties.putAll((Map<?, ?>) arguments.get("settings"));
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            Object topics = arguments.get("topics");
            if (topics instanceof String pattern) {
                consumer.subscribe(new SubscriptionPattern(pattern), this);
            } else {
                @SuppressWarnings("unchecked")
                List<String> names = (List<String>) topics;
                consumer.subscribe(names, this);
            }
            thread.start();
        }

        private void run() {
            try {
                while (!isStopped()) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        add(record.value());
                    }
                }
                consumer.close();
            } catch (RuntimeException thrown) {
                fail(thrown);
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
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            synchronized (SHARES) {
                synchronized (this) {
                    partitions.forEach(partition -> owned.add(partition.toString()));
                }
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            synchronized (SHARES) {
                synchronized (this) {
                    partitions.forEach(partition -> owned.remove(partition.toString()));
                }
            }
        }

        synchronized Map<String, Object> told() {
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("owned", List.copyOf(owned));
            told.put("values", List.copyOf(values));
            told.put("failure", failure);
            return told;
        }

        void stop() throws InterruptedException {
            synchronized (this) {
                stopped = true;
            }
            thread.join();
        }
    }

    /** Starts a member by `name`: `settings` of its consumer, `topics` a list or one regular expression. */
    public static Object start(Map<String, Object> arguments) {
        MEMBERS.put((String) arguments.get("name"), new Member(arguments));
        return null;
    }

    /** What each member that lives owns, has read, and has failed with. */
    public static Object told(Map<String, Object> arguments) {
        Map<String, Object> told = new LinkedHashMap<>();
        synchronized (SHARES) {
            MEMBERS.forEach((name, member) -> told.put(name, member.told()));
        }
        return told;
    }

    /** Closes members by `names`, all that live without any; tells what they had read. */
    @SuppressWarnings("unchecked")
    public static Object stop(Map<String, Object> arguments) throws InterruptedException {
        List<String> names = (List<String>) arguments.getOrDefault("names", List.copyOf(MEMBERS.keySet()));
        Map<String, Object> told = new LinkedHashMap<>();
        for (String name : names) {
            Member member = MEMBERS.remove(name);
            member.stop();
            told.put(name, member.told());
        }
        return told;
    }
}
