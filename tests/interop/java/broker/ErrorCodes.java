import org.apache.kafka.common.protocol.Errors;

/** Prints each error of Kafka's protocol: its code, its name, and the class of its exception ("-" for none). */
public final class ErrorCodes {
    private ErrorCodes() {}

    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            Throwable exception = error.exception();
            String name = exception == null ? "-" : exception.getClass().getSimpleName();
            System.out.println(error.code() + " " + error.name() + " " + name);
        }
    }
}
