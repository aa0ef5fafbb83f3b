/* CuratorBars.java - Curator's InterProcessMutex, for bench/zookeeper.
 *
 *     CuratorBars HOSTS cycle SECONDS
 *     CuratorBars HOSTS turns WORKERS SECONDS    clients with a session each, in this one process
 *
 * Both are warm before they measure: java compiles what it runs often. */
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class CuratorBars {
    static volatile boolean stops;

    static InterProcessMutex open(String hosts, String path) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, 10000, 5000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        return new InterProcessMutex(client, path);
    }

    static double cycle(InterProcessMutex lock, double seconds) throws Exception {
        long begin = System.nanoTime(), end = begin + (long)(seconds * 1e9), cycles = 0;
        for (; System.nanoTime() < end; cycles++) {
            lock.acquire();
            lock.release();
        }
        return (System.nanoTime() - begin) / 1e3 / cycles;
    }

    static void work(String hosts, long[] turns, int me) {
        try {
            InterProcessMutex lock = open(hosts, "/curator/turns");
            while (!stops) {
                lock.acquire();
                turns[me]++;
                lock.release();
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(70);
        }
    }

    public static void main(String[] args) throws Exception {
        String hosts = args[0];
        if (args[1].equals("cycle")) {
            InterProcessMutex lock = open(hosts, "/curator/cycle");
            cycle(lock, 4);
            System.out.printf("curator cycle_us=%.1f%n", cycle(lock, Double.parseDouble(args[2])));
            System.exit(0);
        }
        int workers = Integer.parseInt(args[2]);
        double seconds = Double.parseDouble(args[3]);
        long[] turns = new long[workers];
        for (int i = 0; i < workers; i++) {
            int me = i;
            new Thread(() -> work(hosts, turns, me)).start();
        }
        Thread.sleep(4000);
        long[] before = turns.clone();
        Thread.sleep((long)(seconds * 1000));
        long sum = 0;
        for (int i = 0; i < workers; i++)
            sum += turns[i] - before[i];
        System.out.printf("curator workers=%d hold_us=0 per_s=%.0f%n", workers, sum / seconds);
        System.exit(0);
    }
}
