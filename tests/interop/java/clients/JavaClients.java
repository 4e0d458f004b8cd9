import java.io.PrintStream;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

/**
 * Kafka's Java clients ask a server what they may ask, and print what it answers: JavaClients ADDRESS SCENARIO...
 *
 * <p>The lines are those of {@link Answers}: {"question", "answer"}, and {"restart"} when the server is to be stopped and
 * started again, after which a byte is read from standard input. A question begins with its scenario, and is asked once.
 */
public final class JavaClients {
    private interface Scenario {
        void run(Servers servers, Admin admin, Answers answers) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = Map.of(
            "handover", Handover::run,
            "topics", TopicQuestions::run,
            "configs", ConfigQuestions::run,
            "cluster", ClusterQuestions::run,
            "producing", Producing::run,
            "reading", Reading::run,
            "groups", Groups::run,
            "static", StaticMembers::run,
            "transactions", Transactions::run,
            "restarts", Restarts::run);

    /** Where the server is, for clients of all kinds. */
    record Servers(String address) {
        Properties with(Object... namesAndValues) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", address);
            for (int i = 0; i < namesAndValues.length; i += 2) {
                properties.put(namesAndValues[i], namesAndValues[i + 1]);
            }
            return properties;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        System.setOut(System.err);
        Servers servers = new Servers(arguments[0]);
        for (String name : List.of(arguments).subList(1, arguments.length)) {
            Answers answers = new Answers(output, name);
            try (Admin admin = Admin.create(servers.with())) {
                SCENARIOS.get(name).run(servers, admin, answers);
            } catch (Exception failure) {
                failure.printStackTrace();
                answers.say("broken off", failure.toString());
            }
        }
        // Members that wait for a server do not keep the program.
        output.flush();
        Runtime.getRuntime().halt(0);
    }
}
