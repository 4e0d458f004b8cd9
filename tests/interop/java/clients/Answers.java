import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.datatype.jdk8.Jdk8Module;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.zip.CRC32;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints what a server answers: for each question one JSON line with the answer, or with the error that the client was
 * told, by its name in Kafka's table of errors, or by its class where the client found it itself.
 */
final class Answers {
    private static final long PATIENCE_MS = 180_000;
    private static final long PAUSE_MS = 20;

    private final PrintStream output;
    private final String scenario;
    private final ObjectMapper json = new ObjectMapper()
            .registerModule(new Jdk8Module())
            .configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);

    Answers(PrintStream output, String scenario) {
        this.output = output;
        this.scenario = scenario;
    }

    void ask(String question, Callable<?> call) throws InterruptedException {
        Object answer;
        try {
            answer = call.call();
        } catch (InterruptedException interruption) {
            throw interruption;
        } catch (Exception failure) {
            answer = fields("error", nameOf(failure));
        }
        say(question, answer);
    }

    void say(String question, Object answer) {
        print(fields("question", scenario + ": " + question, "answer", answer));
    }

    /** Let the other side stop the server and start it again. */
    void restart() throws IOException {
        print(fields("restart", true));
        if (System.in.read() < 0) {
            throw new IOException("nobody restarts the server");
        }
    }

    private synchronized void print(Map<String, Object> line) {
        try {
            output.println(json.writeValueAsString(line));
        } catch (JsonProcessingException failure) {
            throw new IllegalStateException(failure);
        }
        output.flush();
    }

    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new TreeMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    static String nameOf(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        Errors error = Errors.forException(cause);
        return error == Errors.UNKNOWN_SERVER_ERROR ? cause.getClass().getSimpleName() : error.name();
    }

    static String crc(byte[] data) {
        if (data == null) {
            return null;
        }
        CRC32 crc = new CRC32();
        crc.update(ByteBuffer.wrap(data));
        return data.length + ":" + Long.toHexString(crc.getValue());
    }

    static void await(String what, BooleanSupplier isSo) throws InterruptedException {
        long started = System.currentTimeMillis();
        while (!isSo.getAsBoolean()) {
            if (System.currentTimeMillis() - started > PATIENCE_MS) {
                throw new IllegalStateException("not in " + PATIENCE_MS + " ms: " + what);
            }
            Thread.sleep(PAUSE_MS);
        }
    }
}
