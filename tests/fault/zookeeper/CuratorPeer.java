/* CuratorPeer.java - Curator's lock beside ours, for zookeeper_cutoff.sh and zookeeper_access.sh.
 *
 *     CuratorPeer HOSTS PATH holder FILE    holds; writes the time to FILE for as long as it may believe so
 *     CuratorPeer HOSTS PATH next FILE      waits; writes the time of its grant
 *     CuratorPeer HOSTS PATH try WAIT_MS UNTIL    prints held or busy; holds until the file UNTIL is there
 *
 * A holder believes as its manual says: until it is told that its connection is suspended or lost. Times are of
 * CLOCK_BOOTTIME, in milliseconds. */
import java.nio.file.*;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class CuratorPeer {
    static volatile boolean connected = true;

    static void writeTime(String file) throws Exception {
        String up = Files.readString(Path.of("/proc/uptime")).split(" ")[0];
        Path fresh = Path.of(file + ".new");
        Files.writeString(fresh, up.replace(".", "") + "0\n");
        Files.move(fresh, Path.of(file), StandardCopyOption.ATOMIC_MOVE);
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 2000, 1000, new RetryOneTime(100));
        client.getConnectionStateListenable().addListener((c, state) -> connected = state.isConnected());
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = new InterProcessMutex(client, args[1]);
        if (args[2].equals("try")) {
            boolean held = lock.acquire(Integer.parseInt(args[3]), TimeUnit.MILLISECONDS);
            System.out.println(held ? "held" : "busy");
            while (held && !Files.exists(Path.of(args[4])))
                Thread.sleep(50);
            if (held)
                lock.release();
            System.exit(0);
        }
        lock.acquire();
        writeTime(args[3]);
        while (args[2].equals("holder") && connected) {
            writeTime(args[3]);
            Thread.sleep(5);
        }
        System.exit(0);
    }
}
