import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic "lines" into the topic "word-counts", exactly once: WordCount ADDRESS DIRECTORY.
 *
 * <p>Nothing is cached, so that each word that is read is one record with the next count. It prints its state whenever
 * that changes, and ends by SIGTERM.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("state.dir", arguments[1]);
        properties.put("application.id", "word-count");
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("commit.interval.ms", "100");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("num.stream.threads", "2");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        properties.put("consumer.auto.offset.reset", "earliest");
        properties.put("consumer.session.timeout.ms", "6000");
        properties.put("consumer.heartbeat.interval.ms", "500");
        properties.put("consumer.max.poll.records", "50");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .to("word-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }
}
