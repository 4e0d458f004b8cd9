import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools by their main classes, one after the other in one JVM.
 *
 * <p>Each line of standard input is {"main", "arguments", "input"}; the answer is a line {"status", "out", "err"}, with
 * the status that the tool ended with and what it wrote.
 */
public final class ToolRunner {
    /** What a tool gets in place of the end of the process. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;
    }

    /** How the first call of the end found a tool, which may go on afterwards: its status, and what it had written. */
    private record End(int status, int out, int err) {}

    private static ByteArrayOutputStream out;
    private static ByteArrayOutputStream err;
    private static End end;
    private static final List<Runnable> hooks = new ArrayList<>();

    private ToolRunner() {}

    private static void exit(int status) {
        if (end == null) {
            end = new End(status, out.size(), err.size());
        }
        throw new Exited();
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream output = System.out;
        ObjectMapper json = new ObjectMapper();
        Exit.setExitProcedure((status, message) -> exit(status));
        // What a tool leaves for the end of the process is done before the next one.
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Exit.setHaltProcedure((status, message) -> exit(status));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = json.readTree(line);
            List<String> words = new ArrayList<>();
            command.get("arguments").forEach(word -> words.add(word.asText()));
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            end = null;
            hooks.clear();
            byte[] input = command.get("input").asText().getBytes(StandardCharsets.UTF_8);
            int status = run(command.get("main").asText(), words, new ByteArrayInputStream(input));
            List.copyOf(hooks).forEach(Runnable::run);
            End found = end == null ? new End(status, out.size(), err.size()) : end;
            output.println(json.writeValueAsString(Answers.fields(
                    "status", found.status,
                    "out", new String(out.toByteArray(), 0, found.out, StandardCharsets.UTF_8),
                    "err", new String(err.toByteArray(), 0, found.err, StandardCharsets.UTF_8))));
            output.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String main, List<String> words, InputStream input) {
        PrintStream toOut = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream toErr = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setIn(input);
        System.setOut(toOut);
        System.setErr(toErr);
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) words.toArray(String[]::new));
            return 0;
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            return 127;
        } finally {
            toOut.flush();
            toErr.flush();
        }
    }
}
