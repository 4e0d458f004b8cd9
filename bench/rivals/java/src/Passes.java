import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Answers each line "PASSES" on the standard input by one line, until there are no more. */
final class Passes {
    interface Pass {
        long run() throws Exception;
    }

    interface Answer {
        Object to(int passes) throws Exception;
    }

    private Passes() {}

    /** The answer of a program that prints the sum of one pass. */
    static Answer sumOf(Pass pass) {
        return passes -> {
            long sum = 0;
            for (; passes > 0; passes--) sum = pass.run();
            return sum;
        };
    }

    static void serve(Answer answer) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer.to(Integer.parseInt(line.trim())));
            System.out.flush();
        }
    }
}
