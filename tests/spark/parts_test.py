"""hvd_spark without Spark: its parts, and jobs on agents that are reached directly or through
links."""

import hashlib
import hmac
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

from hvd_spark import HvdDistributor, ProgramError, StartError, frames
from hvd_spark.agent import Agent
from hvd_spark.blame import SETTLE_SECONDS, Blame, End
from hvd_spark.job import Job
from hvd_spark.link import Link, LinkServer, key_of
from hvd_spark.output import Output
from hvd_spark.placement import rank_variables
from hvd_spark.result import ResultDescriptor, to_object
from hvd_spark.task import relay
from hvd_spark.version import VERSION

import support

SECRET = bytes(range(32))


def exited(code):
    return code << 8


class Placement(unittest.TestCase):
    def test_ranks_of_a_host_are_neighbours_wherever_their_tasks_are(self):
        variables = [
            dict(entry.split("=") for entry in rank) for rank in rank_variables(list("abaab"))
        ]
        of = lambda name: [int(rank[name]) for rank in variables]
        self.assertEqual(of("HVD_RANK"), [0, 1, 2, 3, 4])
        self.assertEqual(of("HVD_LOCAL_RANK"), [0, 0, 1, 2, 1])
        self.assertEqual(of("HVD_LOCAL_SIZE"), [3, 2, 3, 3, 2])
        self.assertEqual(of("HVD_CROSS_RANK"), [0, 1, 0, 0, 1])
        self.assertEqual(of("HVD_CROSS_SIZE"), [2, 2, 2, 1, 2])
        self.assertEqual(of("GROUP_RANK"), [0, 1, 0, 0, 1])
        self.assertEqual(of("WORLD_SIZE"), [5] * 5)


class Blaming(unittest.TestCase):
    def blamed(self, *ends, lost_by=lambda rank: None):
        blame = Blame()
        for end in ends:
            blame.add(end, 1.0)
        return blame.causes(lost_by)[0].rank

    def test_a_killed_rank_comes_before_the_errors_that_its_death_causes(self):
        self.assertEqual(self.blamed(End(0, exited(1)), End(2, signal.SIGKILL)), 2)
        self.assertEqual(self.blamed(End(0, exited(1)), End(2, exited(128 + signal.SIGSEGV))), 2)

    def test_an_uncaught_exception_is_an_error_exit(self):
        self.assertEqual(self.blamed(End(0, exited(1)), End(2, signal.SIGABRT)), 0)

    def test_a_lost_task_comes_before_errors(self):
        self.assertEqual(self.blamed(End(0, exited(1)), End(1, None)), 1)

    def test_of_two_errors_the_earlier_one_is_the_cause_whichever_was_heard_of_first(self):
        self.assertEqual(
            self.blamed(End(0, exited(3), 2.0, at=12.1), End(1, exited(7), 2.0, at=12.0)), 1
        )

    def test_a_rank_that_another_complains_of_is_the_cause_if_it_failed_itself(self):
        ends = [End(0, exited(3), at=1.0), End(1, exited(7), at=1.1)]
        self.assertEqual(self.blamed(*ends, lost_by={0: 1}.get), 1)
        self.assertEqual(self.blamed(*ends, lost_by={0: 2}.get), 0)
        self.assertEqual(self.blamed(End(0, signal.SIGKILL), ends[1], lost_by={0: 1}.get), 0)

    def test_a_deserter_comes_before_errors_and_alone_is_no_failure(self):
        deserter = End(1, exited(0), at=1.0, deserted=True)
        self.assertEqual(deserter.code(), 70)
        self.assertEqual(self.blamed(End(0, exited(3), at=0.9), deserter, lost_by={1: 0}.get), 1)
        self.assertEqual(self.blamed(deserter, End(2, signal.SIGKILL, at=2.0)), 2)
        blame = Blame()
        blame.add(deserter, 1.0)
        self.assertIsNone(blame.settled_at())
        blame.add(End(0, exited(3)), 2.0)
        self.assertAlmostEqual(blame.settled_at(), 2.0 + SETTLE_SECONDS)

    def test_nothing_is_settled_without_a_failure(self):
        blame = Blame()
        blame.add(End(0, exited(0)), 1.0)
        self.assertIsNone(blame.settled_at())
        blame.add(End(1, exited(4)), 2.0)
        self.assertAlmostEqual(blame.settled_at(), 2.0 + SETTLE_SECONDS)


class Printing(unittest.TestCase):
    def printed(self, *pieces):
        with support.Streams().taken() as streams:
            output = Output()
            for piece in pieces:
                output.feed(3, 0, piece)
            output.finish()
        self.tail, self.output = output.tail(3), output
        return streams.out()

    def test_lines_that_come_in_pieces_come_out_whole(self):
        self.assertEqual(
            self.printed(b"on", b"e\ntw", "ö".encode()[:1], "ö".encode()[1:]),
            "[3]<stdout>:one\n[3]<stdout>:twö\n",
        )

    def test_returns_are_kept_and_end_lines_once(self):
        self.assertEqual(
            self.printed(b"10%\r20%\r", b"\nok\r\n\n"),
            "[3]<stdout>:10%\r[3]<stdout>:20%\r[3]<stdout>:ok\n[3]<stdout>:\n",
        )

    def test_a_line_without_end_comes_out_in_pieces(self):
        text = self.printed(b"x" * 70000, b"y\n")
        self.assertEqual(text.count("x"), 70000)
        self.assertEqual(text.count("\n"), 2)

    def test_what_a_rank_complains_of_is_found(self):
        self.printed(b"peer lost: rank 1 on a: silent for 2.0 s\nterminate called\n")
        self.assertEqual((self.output.lost_by(3), self.output.lost_by(2)), (1, None))

    def test_the_last_hundred_lines_are_kept(self):
        self.printed(b"".join(b"%d\n" % i for i in range(250)))
        self.assertEqual(self.tail, ["[3]<stdout>:%d" % i for i in range(150, 250)])


class Links(unittest.TestCase):
    def setUp(self):
        self.accepted = []
        self.arrived = threading.Semaphore(0)
        self.server = LinkServer("127.0.0.1", key_of(SECRET), self.accept)
        self.addCleanup(self.server.close)

    def accept(self, link):
        self.addCleanup(link.close)
        self.accepted.append(link)
        self.arrived.release()

    def connect(self, key=key_of(SECRET)):
        link = Link.of_task(("127.0.0.1", self.server.port), key)
        self.addCleanup(link.close)
        self.assertTrue(self.arrived.acquire(timeout=10))
        return link

    def test_messages_arrive_in_order_both_ways(self):
        task, driver = self.connect(), self.accepted[0]
        for size in (0, 1, 100000):
            task.send(b"t" * size)
            driver.send(b"d" * size)
        self.assertEqual([len(driver.receive()) for _ in range(3)], [0, 1, 100000])
        self.assertEqual([task.receive()[:1] for _ in range(3)], [b"", b"d", b"d"])

    def test_nothing_is_lost_of_an_agent_that_ended_before_it_heard_all(self):
        class Ended:
            def __init__(self, said):
                self._said = iter(said)

            def receive(self):
                return next(self._said, None)

            def send(self, frame):
                raise BrokenPipeError

            def close(self):
                pass

        task, driver = self.connect(), self.accepted[0]
        said = [bytes([frames.OUTPUT]) + bytes(1 << 16)] * 100 + [bytes([frames.DONE])]
        for _ in range(1000):
            driver.send(frames.credit(1))
        whole = []
        thread = threading.Thread(
            target=lambda: (whole.append(relay(Ended(said), task)), task.close())
        )
        thread.start()
        heard = []
        while (frame := driver.receive()) is not None:
            heard.append(frame)
        thread.join(20)
        self.assertEqual([len(frame) for frame in heard], [len(frame) for frame in said])
        self.assertEqual(whole, [True])

    def test_another_key_is_refused_by_both(self):
        with self.assertRaises(OSError):
            Link.of_task(("127.0.0.1", self.server.port), key_of(bytes(32)))
        with socket.create_connection(("127.0.0.1", self.server.port)) as stranger:
            stranger.settimeout(10)
            stranger.sendall(b"hvd-spark-link-1" + bytes(32))
            answer = b""
            while len(answer) < 64:
                answer += stranger.recv(64)
            stranger.sendall(bytes(32))
            self.assertEqual(stranger.recv(1), b"")
        self.assertEqual(self.accepted, [])

    def test_a_stranger_who_says_nothing_holds_up_nobody(self):
        with socket.create_connection(("127.0.0.1", self.server.port)):
            self.connect()

    def test_a_changed_message_and_one_that_comes_twice_end_the_link(self):
        for again in (False, True):
            near, far = socket.socketpair()
            self.addCleanup(near.close)
            link = Link(far, b"k" * 32, b"k" * 32)
            Link(near, b"k" * 32, b"k" * 32).send(b"hello")
            self.assertEqual(link.receive(), b"hello")
            number, text = (0, b"hello") if again else (1, b"hellO")
            digest = hmac.new(
                b"k" * 32, struct.pack("<Q", number) + b"hello", hashlib.sha256
            ).digest()
            near.sendall(struct.pack("<I", 5) + text + digest)
            self.assertIsNone(link.receive())

    def test_the_end_of_one_side_is_the_end_of_the_other(self):
        task = self.connect()
        self.accepted[0].close()
        self.assertIsNone(task.receive())


class Constructor(unittest.TestCase):
    def test_unknown_parameters_are_named(self):
        with self.assertRaisesRegex(TypeError, "num_workers.*num_processes"):
            HvdDistributor(num_workers=2)

    def test_the_number_of_processes_is_checked(self):
        for number in (0, -1):
            with self.assertRaisesRegex(ValueError, "num_processes is %d" % number):
                HvdDistributor(number)
        for thing in (1.5, "2", True, None):
            with self.assertRaisesRegex(TypeError, "num_processes"):
                HvdDistributor(thing)

    def test_variables_are_checked(self):
        for name in ("A=B", "", "HVD_RANK"):
            with self.assertRaises(ValueError):
                HvdDistributor(1, environment={name: "x"})


class Jobs(unittest.TestCase):
    """Ranks that are real, on agents that are real."""

    def start(self, program, hosts, meeting, through=lambda agent: agent):
        """A job with an agent per rank, which `through` may put something before."""
        job = Job(len(hosts))
        self.addCleanup(job.close)
        self.result = ResultDescriptor()
        variables = rank_variables(hosts)
        variables[0] += self.result.variables()
        for rank in range(len(hosts)):
            agent = Agent(support.HVDRUN, os.getcwd(), os.environ["PATH"], [self.result.fd])
            channel = through(agent)
            job.adopt(channel)
            job.add(channel, [rank], "host %s" % hosts[rank])
            agent.send(
                frames.prepare(
                    version=VERSION,
                    job_id=job.id,
                    meeting=meeting if rank == 0 else frames.MEET_ELSEWHERE,
                    interfaces="lo" if meeting == frames.MEET_ON_NETWORK else "",
                    directory=os.getcwd(),
                    program=program,
                    environment=["HVD_NETWORK_INTERFACES=lo", "HVD_PLAN=default"],
                    ranks=[frames.Rank(rank, variables[rank])],
                    secret=SECRET,
                )
            )
        return job

    def link(self, agent):
        """A task between agent and driver, as a thread of this process."""
        links = []
        arrived = threading.Event()
        server = LinkServer(
            "127.0.0.1", key_of(SECRET), lambda link: (links.append(link), arrived.set())
        )
        self.addCleanup(server.close)
        task = Link.of_task(("127.0.0.1", server.port), key_of(SECRET))
        self.assertTrue(arrived.wait(10))
        thread = threading.Thread(target=lambda: (relay(agent, task), task.close()))
        thread.start()
        self.addCleanup(thread.join, 20)
        self.addCleanup(links[0].close)
        return links[0]

    def test_ranks_of_two_hosts_meet_over_the_network_through_links(self):
        with support.Streams().taken() as streams:
            job = self.start(
                [support.RANK, "place", "a b"], ["x", "y"], frames.MEET_ON_NETWORK, self.link
            )
            job.launch()
            job.watch()
        self.assertEqual(len(streams.lines()), 2, streams.out() + streams.errors())
        self.assertRegex(streams.lines()[1], r"\[1\]<stdout>:rank 1 of 2 .*arguments \(a b\)")
        self.assertEqual(to_object(self.result.take()), {"sum": 3, "text": "ä"})

    def test_the_rank_that_failed_is_named_with_its_last_lines(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "7"], ["x", "x"], frames.MEET_ON_MACHINE)
            job.launch()
            with self.assertRaises(ProgramError) as caught:
                job.watch()
        error = caught.exception
        self.assertEqual((error.rank, error.code, len(error.lines)), (1, 7, 100))
        self.assertEqual(error.lines[-1], "[1]<stderr>:this is why")
        self.assertRegex(str(error), r"^rank 1 on \S+ \(pid \d+\) exited 7 after")

    def test_a_killed_rank_is_blamed_and_not_its_victims(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "-9"], ["x", "x"], frames.MEET_ON_MACHINE)
            job.launch()
            with self.assertRaises(ProgramError) as caught:
                job.watch()
        self.assertEqual((caught.exception.rank, caught.exception.code), (1, 137))

    def test_a_rank_that_goes_without_a_farewell_is_blamed_and_a_victim_quoted(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "0"], ["x", "x"], frames.MEET_ON_MACHINE)
            job.launch()
            with self.assertRaises(ProgramError) as caught:
                job.watch()
        error = caught.exception
        self.assertEqual((error.rank, error.code), (1, 70))
        self.assertRegex(str(error), r"^rank 1 on .* exited 0 without hvd::shutdown\(\) after")
        self.assertRegex(str(error), r"\nthen rank 0 on .*\nrank 0's last lines:\n.*rank 1")

    def test_more_output_than_may_be_on_its_way_arrives(self):
        with support.Streams().taken() as streams:
            command = [support.RANK, "flood", "100000"]
            job = self.start(command, ["x", "x"], frames.MEET_ON_MACHINE, self.link)
            job.launch()
            job.watch()
        self.assertEqual(streams.out().count("of 100000\n"), 200000)

    def test_a_program_that_is_not_there_starts_nothing(self):
        job = self.start(["./not_there"], ["x"], frames.MEET_ON_MACHINE)
        with self.assertRaisesRegex(StartError, "rank 0 .*not_there.*not found"):
            job.launch()

    def test_an_agent_that_is_lost_loses_its_rank_and_ends_the_job(self):
        with support.Streams().taken() as streams:
            agents = []
            job = self.start(
                [support.RANK, "wait"],
                ["x", "y"],
                frames.MEET_ON_MACHINE,
                lambda a: agents.append(a) or a,
            )
            job.launch()
            thread_error = []

            def watch():
                try:
                    job.watch()
                except ProgramError as error:
                    thread_error.append(error)

            thread = threading.Thread(target=watch)
            thread.start()
            processes = support.wait_until(
                lambda: support.waiting_processes(streams.out(), 2), 20, "ranks run"
            )
            agents[1]._process.kill()
            thread.join(20)
        self.assertEqual((thread_error[0].rank, thread_error[0].code), (1, None))
        job.close()
        for pid in sum(processes, ()):
            support.wait_until(lambda: not support.is_running(pid), 10, "process %d is gone" % pid)

    def test_nothing_is_left_of_a_driver_that_is_killed(self):
        script = (
            "import parts_test, unittest\n"
            "from hvd_spark import frames\n"
            "case = parts_test.Jobs()\n"
            "command = [parts_test.support.RANK, 'wait']\n"
            "job = case.start(command, ['x', 'x'], frames.MEET_ON_MACHINE)\n"
            "job.launch()\n"
            "job.watch()\n"
        )
        driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        self.addCleanup(driver.stdout.close)
        text = driver.stdout.readline() + driver.stdout.readline()
        processes = support.waiting_processes(text, 2)
        driver.kill()
        driver.wait()
        for pid in sum(processes, ()):
            support.wait_until(lambda: not support.is_running(pid), 10, "process %d is gone" % pid)

    def test_ranks_get_the_signal_of_an_interrupted_driver(self):
        script = (
            "import parts_test\n"
            "from hvd_spark import distributor, frames\n"
            "case = parts_test.Jobs()\n"
            "words = \"trap 'echo interrupted; exit' INT; echo waiting 1 1; \"\n"
            "command = ['/bin/sh', '-c', words + 'while :; do sleep 0.1; done']\n"
            "distributor._carry_out(case.start(command, ['x', 'x'], frames.MEET_ON_MACHINE))\n"
        )
        driver = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(driver.stdout.close)
        begun = driver.stdout.readline() + driver.stdout.readline()
        self.assertIsNotNone(support.waiting_processes(begun, 2))
        driver.send_signal(signal.SIGINT)
        text, _ = driver.communicate(timeout=30)
        self.assertEqual(text.count("interrupted"), 2, begun + text)

    def test_another_hvdrun_is_refused_by_name(self):
        with self.assertRaisesRegex(FileNotFoundError, "'no_hvdrun'"):
            Agent("no_hvdrun", os.getcwd(), os.environ["PATH"], [])
        with self.assertRaisesRegex(RuntimeError, "no hvdrun"):
            Agent("/bin/true", os.getcwd(), os.environ["PATH"], [])


if __name__ == "__main__":
    unittest.main()
