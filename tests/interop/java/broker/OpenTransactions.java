import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Opens transactions, says so, and waits to be killed.
 *
 * <p>Arguments: the broker's address, and for each transaction TRANSACTIONAL_ID:RECORDS:TOPIC-N,TOPIC-N..., or with
 * GROUP=OFFSET after another colon also an offset of the first partition. A transaction of an id that was named before is
 * the next of the same producer: the one before is committed.
 */
public final class OpenTransactions {
    private OpenTransactions() {}

    public static void main(String[] arguments) throws ExecutionException, InterruptedException {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split(":");
            KafkaProducer<String, String> producer = producers.get(parts[0]);
            if (producer == null) {
                producer = started(arguments[0], parts[0]);
                producers.put(parts[0], producer);
            } else {
                producer.commitTransaction();
            }
            producer.beginTransaction();
            List<TopicPartition> partitions = partitions(parts[2]);
            for (TopicPartition partition : partitions) {
                for (int n = 0; n < Integer.parseInt(parts[1]); n++) {
                    producer.send(new ProducerRecord<>(
                            partition.topic(), partition.partition(), null, parts[0] + " " + n));
                }
            }
            producer.flush();
            if (parts.length > 3) {
                String[] pair = parts[3].split("=");
                producer.sendOffsetsToTransaction(
                        Map.of(partitions.get(0), new OffsetAndMetadata(Long.parseLong(pair[1]))),
                        new ConsumerGroupMetadata(pair[0]));
            }
        }
        System.out.write("open\n".getBytes(StandardCharsets.UTF_8), 0, 5);
        System.out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static KafkaProducer<String, String> started(String address, String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("transactional.id", transactionalId);
        properties.put("transaction.timeout.ms", "900000");
        StringSerializer text = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties, text, text);
        producer.initTransactions();
        return producer;
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String name : text.split(",")) {
            int dash = name.lastIndexOf('-');
            found.add(new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1))));
        }
        return found;
    }
}
