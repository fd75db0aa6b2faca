"""hvd_spark without Spark: its parts, and jobs on agents that are reached directly or through
links."""

import hashlib
import hmac
import io
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from hvd_spark import HvdDistributor, ProgramError, StartError
from hvd_spark.agent import Agent
from hvd_spark.job import Job
from hvd_spark.link import Link, LinkServer, key_of
from hvd_spark.own_part import own_part
from hvd_spark.result import ResultDescriptor, to_object
from hvd_spark.task import relay

import support

SECRET = bytes(range(32))


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
        said = [bytes(1 << 16)] * 100 + [b"done"]
        for _ in range(1000):
            driver.send(b"credit")
        thread = threading.Thread(target=lambda: (relay(Ended(said), task), task.close()))
        thread.start()
        heard = []
        while (frame := driver.receive()) is not None:
            heard.append(frame)
        thread.join(20)
        self.assertEqual([len(frame) for frame in heard], [len(frame) for frame in said])

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


class Import(unittest.TestCase):
    def test_a_spark_that_is_too_old_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/pyspark")
            with open(folder + "/pyspark/__init__.py", "w") as file:
                file.write("__version__ = '3.5.7'\n")
            path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
            ended = subprocess.run(
                [sys.executable, "-c", "import hvd_spark"],
                env={**os.environ, "PYTHONPATH": path},
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
        self.assertNotEqual(ended.returncode, 0)
        self.assertRegex(
            ended.stderr, "ImportError: hvd_spark needs Spark 4 or newer, and this is pyspark 3.5.7"
        )


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

    def start(
        self, program, machines, through=lambda agent: agent, hvdrun=support.HVDRUN, **options
    ):
        """A job with an agent per rank, which `through` may put something before."""
        job = Job(support.HVDRUN, **options)
        self.addCleanup(job.close)
        self.result = ResultDescriptor()
        for rank, machine in enumerate(machines):
            own = own_part(
                program=program,
                directory=os.getcwd(),
                environment=["HVD_NETWORK_INTERFACES=lo", "HVD_PLAN=default"],
                interfaces="lo" if len(set(machines)) > 1 else "",
                secret=SECRET,
                of_first_rank=self.result.variables() if rank == 0 else [],
            )
            agent = Agent(hvdrun, os.getcwd(), os.environ["PATH"], own, [self.result.fd])
            channel = through(agent)
            job.attach(channel, 1, "host %s" % machine, machine)
            job.adopt(channel)
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
            job = self.start([support.RANK, "place", "a b"], ["x", "y"], self.link)
            job.run()
        self.assertEqual(len(streams.lines()), 2, streams.out() + streams.errors())
        self.assertRegex(streams.lines()[1], r"\[1\]<stdout>:rank 1 of 2 .*arguments \(a b\)")
        self.assertEqual(to_object(self.result.take()), {"sum": 3, "text": "ä"})

    def test_the_rank_that_failed_is_named_with_its_last_lines(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "7"], ["x", "x"])
            with self.assertRaises(ProgramError) as caught:
                job.run()
        error = caught.exception
        self.assertEqual((error.rank, error.code, len(error.lines)), (1, 7, 100))
        self.assertEqual(error.lines[-1], "[1]<stderr>:this is why")
        self.assertRegex(str(error), r"^rank 1 on host x \(local 1, pid \d+\) exited 7 after")

    def test_a_killed_rank_is_blamed_and_not_its_victims(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "-9"], ["x", "x"])
            with self.assertRaises(ProgramError) as caught:
                job.run()
        self.assertEqual((caught.exception.rank, caught.exception.code), (1, 137))

    def test_a_rank_that_goes_without_a_farewell_is_blamed_and_a_victim_quoted(self):
        with support.Streams().taken():
            job = self.start([support.RANK, "fail", "1", "0"], ["x", "x"])
            with self.assertRaises(ProgramError) as caught:
                job.run()
        error = caught.exception
        self.assertEqual((error.rank, error.code), (1, 70))
        self.assertRegex(str(error), r"^rank 1 on .* exited 0 without hvd::shutdown\(\) after")
        self.assertRegex(str(error), r"\nthen rank 0 on .*\nrank 0's last lines:\n.*rank 1")

    def test_more_output_than_may_be_on_its_way_arrives(self):
        with support.Streams().taken() as streams:
            command = [support.RANK, "flood", "100000"]
            job = self.start(command, ["x", "x"], self.link)
            job.run()
        self.assertEqual(streams.out().count("of 100000\n"), 200000)

    def test_the_time_is_in_front_of_lines_and_streams_can_be_given(self):
        given = io.StringIO()
        with support.Streams().taken() as own:
            words = ["/bin/sh", "-c", "echo hello ö; echo there >&2"]
            self.start(words, ["x"], streams=(given, None), timestamps=True).run()
        time = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "
        self.assertRegex(given.getvalue(), time + r"\[0\]<stdout>:hello ö\n$")
        self.assertRegex(own.errors(), time + r"\[0\]<stderr>:there\n$")
        self.assertEqual(own.out(), "")

    def test_a_program_that_is_not_there_starts_nothing(self):
        job = self.start(["./not_there"], ["x"])
        with self.assertRaisesRegex(StartError, "rank 0 .*not_there.*not found"):
            job.run()

    def test_an_agent_that_is_lost_loses_its_rank_and_ends_the_job(self):
        with support.Streams().taken() as streams:
            agents = []
            job = self.start(
                [support.RANK, "wait"], ["x", "y"], lambda a: agents.append(a) or a
            )
            thread_error = []

            def watch():
                try:
                    job.run()
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
        self.assertIn("lost with its task", str(thread_error[0]))
        job.close()
        for pid in sum(processes, ()):
            support.wait_until(lambda: not support.is_running(pid), 10, "process %d is gone" % pid)

    def test_nothing_is_left_of_a_driver_that_is_killed(self):
        script = (
            "import parts_test\n"
            "case = parts_test.Jobs()\n"
            "case.start([parts_test.support.RANK, 'wait'], ['x', 'x']).run()\n"
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
            "from hvd_spark import distributor\n"
            "case = parts_test.Jobs()\n"
            "words = \"trap 'echo interrupted; exit' INT; echo waiting 1 1; \"\n"
            "command = ['/bin/sh', '-c', words + 'while :; do sleep 0.1; done']\n"
            "distributor._carry_out(case.start(command, ['x', 'x']))\n"
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
            self.start([support.RANK], ["x"], hvdrun="no_hvdrun")
        job = self.start([support.RANK], ["x"], hvdrun="/bin/true")
        with self.assertRaisesRegex(StartError, "rank 0 .*no hvdrun of this version"):
            job.run()
        job = Job("no_hvdrun")
        with self.assertRaisesRegex(StartError, "on the driver's machine 'no_hvdrun'"):
            job.run()
        job.close()


if __name__ == "__main__":
    unittest.main()
