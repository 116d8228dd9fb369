import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools and client scenarios in one JVM, because each JVM of its own costs a second and a half of CPU.
 *
 * One JSON object a line on standard input, one JSON object a line as the answer:
 *   {"tool": main class, "arguments": [...], "input": text}    -> {"exit": code, "output": text, "errors": text}
 *   {"scenario": "Class.method", "arguments": {...}}           -> {"result": ...} or {"error": "Class: message"}
 */
public final class ClientHost {
    /** What a tool's call to exit becomes, so that this JVM lives on. */
    @SuppressWarnings("serial")
    private static final class ExitCalled extends Error {
        ExitCalled(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** The first exit counts: some tools catch everything, this error too, and exit again. */
    private static Integer exitStatus;

    /** What tools want done at the end of the JVM is done at the end of the tool. */
    private static final List<Runnable> SHUTDOWN_HOOKS = new ArrayList<>();

    private static void exit(int status) {
        exitStatus = exitStatus == null ? (Integer) status : exitStatus;
        throw new ExitCalled(status);
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> SHUTDOWN_HOOKS.add(hook));
        // What clients print by themselves must not mix with the answers.
        System.setOut(System.err);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> request = JSON.readValue(line, new TypeReference<>() { });
            Map<String, Object> answer = request.containsKey("tool") ? runTool(request) : runScenario(request);
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> runTool(Map<String, Object> request) throws Exception {
        String[] arguments = ((List<String>) request.get("arguments")).toArray(new String[0]);
        byte[] given = ((String) request.getOrDefault("input", "")).getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        InputStream standardInput = System.in;
        PrintStream standardOutput = System.out;
        PrintStream standardError = System.err;
        exitStatus = null;
        boolean threw = false;
        try {
            System.setIn(new ByteArrayInputStream(given));
            System.setOut(new PrintStream(output, true));
            System.setErr(new PrintStream(errors, true));
            Class<?> tool = Class.forName((String) request.get("tool"));
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ClassNotFoundException missing) {
            threw = true;
            missing.printStackTrace();
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof ExitCalled)) {
                threw = true;
                thrown.getCause().printStackTrace();
            }
        } finally {
            SHUTDOWN_HOOKS.forEach(Runnable::run);
            SHUTDOWN_HOOKS.clear();
            System.out.flush();
            System.err.flush();
            System.setIn(standardInput);
            System.setOut(standardOutput);
            System.setErr(standardError);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("exit", exitStatus != null ? exitStatus : threw ? 1 : 0);
        answer.put("output", output.toString(StandardCharsets.UTF_8));
        answer.put("errors", errors.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static Map<String, Object> runScenario(Map<String, Object> request) throws Exception {
        String[] name = ((String) request.get("scenario")).split("\\.");
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            Object result = Class.forName(name[0]).getMethod(name[1], Map.class).invoke(null, request.get("arguments"));
            answer.put("result", result);
        } catch (InvocationTargetException thrown) {
            answer.put("error", nameOf(thrown.getCause()));
        }
        return answer;
    }

    /** An error as a line: the class that a Java program would catch, and its message. */
    static String nameOf(Throwable error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }
}
