// Tests hvdrun over ssh between two hosts.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hvdrun.hpp"
#include "two_hosts.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class SshTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lacks_ = TwoHosts::missing();
    if (!lacks_.empty()) return;
    hosts_ = std::make_unique<TwoHosts>();
    fs::copy_file(TRAIN, shared() / "work" / "train");
    fs::copy_file(STOPPING, shared() / "work" / "stopping");
  }
  static void TearDownTestSuite() { hosts_.reset(); }
  void SetUp() override {
    if (!lacks_.empty()) GTEST_SKIP() << "needs " << lacks_;
  }
  void TearDown() override {
    if (hosts_) expect_nothing_left();
  }

  static TwoHosts& hosts() { return *hosts_; }
  static fs::path shared() { return hosts_->shared().path(); }

  /// `hvdrun --launcher ssh arguments`, typed on host a.
  static test::ProcessOptions hvdrun_on_a(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {HVDRUN, "--launcher", "ssh"});
    return hosts().on("a", std::move(arguments));
  }
  static test::ProcessOptions script_on_a(const std::string& script,
                                          std::vector<std::string> options = {}) {
    std::vector<std::string> arguments = {"-np", "4", "-H", "a:2,b:2"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"sh", "-c", script});
    return hvdrun_on_a(std::move(arguments));
  }

  /// Returns the process of host b with this name.
  static pid_t process_on_b(const std::string& name) {
    for (const pid_t pid : hosts().processes("b")) {
      if (name_of(pid) == name) return pid;
    }
    throw std::runtime_error("no " + name + " among\n" + hosts().left());
  }

  static void expect_nothing_left() {
    EXPECT_TRUE(hosts().all_gone(test::in(kPatience))) << hosts().left();
    EXPECT_THAT(hosts().shared_memory("a"), IsEmpty());
    EXPECT_THAT(hosts().shared_memory("b"), IsEmpty());
  }

 private:
  static inline std::string lacks_;
  static inline std::unique_ptr<TwoHosts> hosts_;
};

// ---- what ranks find

TEST_F(SshTest, RanksOfTheLibraryFindEachOther) {
  const auto result = run(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "./train"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* line : {"[0]<stdout>:rank 0 of 4 on a local 0/2 cross 0/2 sum 6 ready\n",
                           "[1]<stdout>:rank 1 of 4 on a local 1/2 cross 0/2 sum 6 ready\n",
                           "[2]<stdout>:rank 2 of 4 on b local 0/2 cross 1/2 sum 6 ready\n",
                           "[3]<stdout>:rank 3 of 4 on b local 1/2 cross 1/2 sum 6 ready\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST_F(SshTest, TheLaunchersHostNeedNotTakePart) {
  const auto result = run(hvdrun_on_a({"-np", "2", "-H", "b:2", "./train"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[1]<stdout>:rank 1 of 2 on b local 1/2 cross 0/1 sum 1"));
}

TEST_F(SshTest, UsersAddressesAndHostfiles) {
  std::ofstream(shared() / "work" / "hosts.txt") << "# two\na slots=1\n\n10.77.0.2:1 # b\n";
  for (const auto& where : std::vector<std::vector<std::string>>{
           {"-H", "a,root@b"}, {"--hostfile", "hosts.txt"}, {"-H", "10.77.0.1,10.77.0.2"}}) {
    std::vector<std::string> arguments = {"-np", "2"};
    arguments.insert(arguments.end(), where.begin(), where.end());
    arguments.insert(arguments.end(), {"sh", "-c", "hostname"});
    const auto result = run(hvdrun_on_a(std::move(arguments)));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("[0]<stdout>:a\n"), HasSubstr("[1]<stdout>:b\n")));
  }
  auto prepared = hvdrun_on_a({"-np", "2", "hostname"});
  prepared.environment["OMPI_MCA_orte_default_hostfile"] = "hosts.txt";
  EXPECT_THAT(run(std::move(prepared)).out, HasSubstr("[1]<stdout>:b\n"));
}

TEST_F(SshTest, DirectoryEnvironmentAndOutput) {
  auto options = script_on_a(
      "pwd; echo A=$A B=$B C=$C home=$HOME cuda=$CUDA_VISIBLE_DEVICES token=$MY_TOKEN;"
      "echo to-stderr >&2",
      {"-x", "A=x y'\"$z", "-x", "MY_TOKEN", "--output-filename", "logs"});
  options.environment = {{"B", "2\n3"},        {"C", "$(touch pwned)"},
                         {"HOME", "/nowhere"}, {"OTHER_TOKEN", "abc"},
                         {"MY_TOKEN", "mine"}, {"CUDA_VISIBLE_DEVICES", "7"}};
  const auto result = run(std::move(options));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const std::string there = (shared() / "work").string();
  EXPECT_THAT(result.out, HasSubstr("[3]<stdout>:" + there + "\n"));
  EXPECT_THAT(result.out,
              HasSubstr("[3]<stdout>:A=x y'\"$z B=2 3 C=$(touch pwned) home=/root cuda= "
                        "token=mine\n"));
  EXPECT_THAT(result.out, HasSubstr("[0]<stdout>:A=x y'\"$z B=2 3 C=$(touch pwned) home=/nowhere "
                                    "cuda=7 token=mine\n"));
  EXPECT_THAT(result.err, HasSubstr("[2]<stderr>:to-stderr\n"));
  EXPECT_THAT(hosts().shared().read("work/logs/rank.3/stdout"), StartsWith(there));
  EXPECT_FALSE(fs::exists(shared() / "work" / "pwned"));
}

TEST_F(SshTest, InterfacesAreSetForAllLibraries) {
  const auto result = run(script_on_a(
      "echo $HVD_NETWORK_INTERFACES $NCCL_SOCKET_IFNAME $OMPI_MCA_btl_tcp_if_include $MASTER_ADDR",
      {"--network-interfaces", "10.77.0.0/16"}));
  EXPECT_EQ(count(result.out, "10.77.0.0/16 =eth0 eth0 10.77.0.1\n"), 4U)
      << result.out << result.err;
  const auto none =
      run(hvdrun_on_a({"-np", "2", "-H", "a,b", "--network-interfaces", "ib7", "true"}));
  EXPECT_EQ(none.exit_code(), 64);
  EXPECT_THAT(none.err, HasSubstr("no network interface matches 'ib7'"));
}

TEST_F(SshTest, TheProgramMaySetItsInterfacesItself) {
  const auto result = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "./train", "over", "eth0"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, " sum 1 ready\n"), 2U) << result.out;
  const auto none = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "./train", "over", "ib7"}));
  EXPECT_EQ(none.exit_code(), 3);
  EXPECT_THAT(none.err, HasSubstr("no network interface matches 'ib7'"));
}

TEST_F(SshTest, PortAndKeyAreSshs) {
  // Only this test uses the second sshd of b. The key has a name that ssh does not look for.
  run(hosts().on("a", {"sh", "-c",
                       "mv /root/.ssh/id_ed25519 /root/.ssh/mine; cp /root/.ssh/known_hosts "
                       "/root/.ssh/kept; sed -i 's/^[^ ]*/[b]:2222/' /root/.ssh/known_hosts"}));
  const auto without = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "-p", "2222", "hostname"}));
  const auto with = run(
      hvdrun_on_a({"-np", "2", "-H", "a,b", "-p", "2222", "-i", "/root/.ssh/mine", "hostname"}));
  run(hosts().on("a", {"sh", "-c", "cd /root/.ssh; mv mine id_ed25519; mv kept known_hosts"}));
  EXPECT_EQ(without.exit_code(), 69);
  EXPECT_THAT(without.err, HasSubstr("Permission denied"));
  EXPECT_EQ(with.exit_code(), 0) << with.err;
  EXPECT_THAT(with.out, HasSubstr("[1]<stdout>:b\n"));
}

TEST_F(SshTest, ALoginShellMayChatter) {
  // sshd runs this file before each command.
  run(hosts().on("b", {"sh", "-c", "echo 'echo welcome to b' > /root/.ssh/rc"}));
  const auto result = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "hostname"}));
  run(hosts().on("b", {"rm", "/root/.ssh/rc"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[1]<stdout>:b\n"));
}

// ---- secrets

TEST_F(SshTest, SecretsAreNowhereToBeFound) {
  constexpr const char* kPlanted = "planted-7f3a9";
  // Every rank searches all processes of its host for the secret, except hvdrun itself, which got
  // the secret from the user.
  const std::string script = R"sh(
    secret=$(head -c 32 /proc/self/fd/$HVD_SECRET_FD | od -An -v -tx1 | tr -d ' \n')
    test ${#secret} = 64 || exit 3
    for process in /proc/[0-9]*; do
      test "$(cat $process/comm 2>/dev/null)" = hvdrun && continue
      for file in cmdline environ; do
        grep -qa planted-7f3[a]9 $process/$file 2>/dev/null && { cat $process/cmdline; exit 4; }
        case $(od -An -v -tx1 $process/$file 2>/dev/null | tr -d ' \n') in *$secret*) exit 5;; esac
      done
    done
    echo "secret=$secret" > /dev/shm/secret.$HVD_RANK; mv /dev/shm/secret.$HVD_RANK secret.$HVD_RANK
    echo looked)sh";
  auto options = script_on_a(script, {"--verbose", "--output-filename", "secret-logs"});
  options.environment = {{"AWS_SECRET_ACCESS_KEY", kPlanted}};
  const auto result = run(std::move(options));
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_EQ(count(result.out, "looked\n"), 4U);
  EXPECT_THAT(result.err, HasSubstr("not passed on without -x: AWS_SECRET_ACCESS_KEY"));
  const std::string line = hosts().shared().read("work/secret.3");
  EXPECT_EQ(line, hosts().shared().read("work/secret.0"));
  const std::string secret = line.substr(7, 64);
  ASSERT_EQ(secret.size(), 64U);
  for (int rank = 0; rank < 4; ++rank)
    fs::remove(shared() / "work" / fmt::format("secret.{}", rank));
  for (const auto& entry : fs::recursive_directory_iterator(shared())) {
    if (!entry.is_regular_file() || entry.path().filename() == "train") continue;
    const auto text = hosts().shared().read(fs::relative(entry.path(), shared()));
    EXPECT_EQ(text.find(kPlanted), std::string::npos) << entry.path();
    EXPECT_EQ(text.find(secret), std::string::npos) << entry.path();
  }
  for (const std::string& text : {result.out, result.err}) {
    EXPECT_EQ(text.find(kPlanted), std::string::npos);
    EXPECT_EQ(text.find(secret), std::string::npos);
  }
}

TEST_F(SshTest, ASecretThatIsAskedForGoesAlong) {
  auto options =
      script_on_a("echo key=$AWS_SECRET_ACCESS_KEY cuda=$CUDA_VISIBLE_DEVICES token=$T_TOKEN",
                  {"-x", "AWS_SECRET_ACCESS_KEY", "-x", "CUDA_VISIBLE_DEVICES=3",
                   "--mpi-launch-flag", "env T_TOKEN=t"});
  options.environment = {
      {"AWS_SECRET_ACCESS_KEY", "asked"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"T_TOKEN", "not"}};
  EXPECT_EQ(count(run(std::move(options)).out, "key=asked cuda=3 token=t\n"), 4U);
}

// ---- exit codes

TEST_F(SshTest, AFailingRankIsNamedWithItsHost) {
  const auto result = run(script_on_a("test $HVD_RANK = 2 || exec sleep 60; echo why >&2; exit 7"));
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: rank 2 on b (local 0, pid "),
                                HasSubstr(") exited 7 after "), HasSubstr("  [2]<stderr>:why\n"),
                                HasSubstr("hvdrun: ranks 0-1, 3 were ended by hvdrun\n")));
}

TEST_F(SshTest, RanksOfARestartFindEachOther) {
  // The ranks of the first try met at a store that the second try does not know.
  const auto result = run(script_on_a(
      "test $HVD_RESTART_COUNT$HVD_RANK = 03 && exit 3; exec ./train", {"--max-restarts", "1"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, " sum 6 ready\n"), 4U) << result.out;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("hvdrun: rank 3 on b (local 1, pid "), HasSubstr(") exited 3 after "),
                    HasSubstr("hvdrun: restart 1 of 1\n")));
}

TEST_F(SshTest, AFailureToConnectSuggestsTheNetworkUnlessItWasChosen) {
  const std::string fails = "echo 'NCCL error: ncclInternalError' >&2; exit 1";
  EXPECT_THAT(run(script_on_a(fails)).err, HasSubstr("--network-interfaces picks the one"));
  const auto chosen = run(script_on_a(fails, {"--network-interfaces", "eth0"}));
  EXPECT_EQ(chosen.exit_code(), 1);
  EXPECT_THAT(chosen.err, Not(HasSubstr("--network-interfaces")));
}

TEST_F(SshTest, ProgramsAreCheckedOnEveryHostBeforeAnyStarts) {
  // Each host has its own /dev/shm, so this program exists on a only.
  const auto on_a = run(hosts().on("a", {"sh", "-c", "cp /bin/true /dev/shm/only-here"}));
  ASSERT_EQ(on_a.exit_code(), 0);
  const auto missing = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "/dev/shm/only-here"}));
  EXPECT_EQ(missing.exit_code(), 127);
  EXPECT_THAT(missing.err, HasSubstr("hvdrun: b: '/dev/shm/only-here': program not found"));
  run(hosts().on("b", {"sh", "-c", "touch /dev/shm/only-here"}));
  const auto not_executable = run(hvdrun_on_a({"-np", "2", "-H", "a,b", "/dev/shm/only-here"}));
  EXPECT_EQ(not_executable.exit_code(), 126);
  for (const char* host : {"a", "b"}) run(hosts().on(host, {"rm", "/dev/shm/only-here"}));
}

TEST_F(SshTest, HostsThatCannotBeReachedAre69) {
  struct Case {
    const char* host;
    const char* words;
  };
  // The user nobody has no key here, so ssh would ask for a password.
  for (const Case& one :
       {Case{"no-such-host.invalid", "no-such-host.invalid"},
        Case{"127.0.0.9", "cannot reach 127.0.0.9"}, Case{"nobody@b", "Permission denied"}}) {
    const auto result = run(hvdrun_on_a({"-np", "2", "-H", fmt::format("a,{}", one.host), "true"}));
    EXPECT_EQ(result.exit_code(), 69) << one.host;
    EXPECT_THAT(result.err, AllOf(StartsWith("hvdrun: cannot reach "), HasSubstr(one.words)));
    EXPECT_EQ(count(result.err, "\n"), 1U) << result.err;
  }
}

TEST_F(SshTest, AHostThatDoesNotAnswerIsGivenUpInTime) {
  const auto result =
      run(hvdrun_on_a({"-np", "2", "-H", "a,10.77.0.9", "--start-timeout", "1", "true"}));
  EXPECT_EQ(result.exit_code(), 69);
  EXPECT_THAT(result.err, HasSubstr("10.77.0.9"));
}

TEST_F(SshTest, AnUnknownHostKeyIsRefused) {
  const auto result =
      run(hosts().on("a", {"unshare", "-m", "sh", "-c",
                           "mount --bind /dev/null /root/.ssh/known_hosts; exec " HVDRUN
                           " --launcher ssh -np 1 -H b true"}));
  EXPECT_EQ(result.exit_code(), 69);
  EXPECT_THAT(result.err, HasSubstr("Host key verification failed"));
}

TEST_F(SshTest, AnotherVersionIs76) {
  // The file on b under hvdrun's path is not an hvdrun of this version.
  fs::create_directory(shared() / "other");
  fs::copy_file(HVDRUN, shared() / "other" / "hvdrun");
  std::ofstream(shared() / "fake") << "#!/bin/sh\necho 'hvdrun-agent 9.9.9'\ncat >/dev/null\n";
  fs::permissions(shared() / "fake", fs::perms::owner_all);
  const std::string path = (shared() / "other" / "hvdrun").string();
  const auto bind = [&](const char* what) {
    run(hosts().on("b", {"mount", "--bind", (shared() / what).string(), path}));
    const auto result =
        run(hosts().on("a", {path, "--launcher", "ssh", "-np", "2", "-H", "a,b", "true"}));
    run(hosts().on("b", {"umount", path}));
    return result;
  };
  const auto other = bind("fake");
  EXPECT_EQ(other.exit_code(), 76);
  EXPECT_THAT(other.err, AllOf(HasSubstr("'9.9.9'"), HasSubstr(" on b")));
  std::ofstream(shared() / "nothing");
  const auto none = bind("nothing");
  EXPECT_EQ(none.exit_code(), 69);
  EXPECT_THAT(none.err, HasSubstr("hvdrun cannot be run on b"));
}

// ---- the MPI Operator's files, by a stand-in: its hosts are these two

TEST_F(SshTest, ALauncherPodOfTheMpiOperator) {
  const fs::path mpi = shared() / "mpi";
  fs::create_directory(mpi);
  std::ofstream(mpi / "hostfile") << "a slots=2\nb slots=2\n";
  std::ofstream(mpi / "discover_hosts.sh") << "#!/bin/sh\necho a\necho b\n";
  fs::permissions(mpi / "discover_hosts.sh", fs::perms::owner_all);
  const auto in_pod = [&](std::vector<std::string> command, const std::string& role) {
    command.insert(command.begin(), HVD_DEPLOY "/entrypoint");
    auto options = hosts().on("a", std::move(command));
    options.environment["K_MPI_JOB_ROLE"] = role;
    options.environment["OMPI_MCA_orte_default_hostfile"] = (mpi / "hostfile").string();
    options.environment["HVD_WORKERS_TIMEOUT"] = "20";
    return options;
  };
  const std::string hvdrun = HVDRUN " -np 4 --launcher ssh ";
  for (const std::string& command :
       {hvdrun + "./train", hvdrun + "--hostfile " + (mpi / "hostfile").string() + " ./train",
        hvdrun + "-H \"$(" + (mpi / "discover_hosts.sh").string() +
            " | sed 's/$/:2/' | paste -sd,)\" ./train"}) {
    const auto result = run(in_pod({"sh", "-c", command}, "launcher"));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[3]<stdout>:rank 3 of 4 on b local 1/2"));
  }
  EXPECT_EQ(run(in_pod({"sh", "-c", "exit 5"}, "launcher")).exit_code(), 5);
  EXPECT_EQ(run(in_pod({"sh", "-c", "exit 6"}, "worker")).exit_code(), 6);
  EXPECT_EQ(run(in_pod({"true"}, "manager")).exit_code(), 64);

  std::ofstream(mpi / "hostfile") << "a slots=2\nno-such-host.invalid slots=2\n";
  auto never = in_pod({"true"}, "launcher");
  never.environment["HVD_WORKERS_TIMEOUT"] = "1";
  const auto result = run(std::move(never));
  EXPECT_EQ(result.exit_code(), 69);
  EXPECT_THAT(result.err, HasSubstr("no-such-host.invalid does not answer"));

  const auto discovers =
      run(in_pod({"sh", "-c", "exit 7", "--host-discovery-script", "x"}, "launcher"));
  EXPECT_EQ(discovers.exit_code(), 7) << "hvdrun waits for these hosts itself";
}

/// The sshd of these hosts runs already, so another program takes its place in the pod.
TEST_F(SshTest, APodOfTheMpiOperatorServesSsh) {
  std::ofstream(shared() / "sshd") << "#!/bin/sh\necho \"sshd $*\"\n[ $# = 0 ] || exec sleep 600\n";
  fs::permissions(shared() / "sshd", fs::perms::owner_all);
  std::ofstream(shared() / "pods") << "a.train.default.svc slots=1\n";
  const auto in_pod = [&](const std::string& host, const std::string& role) {
    auto options = hosts().on(host, {"unshare", "-m", "sh", "-c",
                                     "mount --bind " + (shared() / "sshd").string() +
                                         " /usr/sbin/sshd; exec " HVD_DEPLOY "/entrypoint \"$@\"",
                                     "sh"});
    if (role == "launcher") options.arguments.push_back("true");
    options.environment["K_MPI_JOB_ROLE"] = role;
    options.environment["HOSTNAME"] = host;
    options.environment["OMPI_MCA_orte_default_hostfile"] = (shared() / "pods").string();
    options.environment["HVD_WORKERS_TIMEOUT"] = "0";
    return options;
  };
  EXPECT_EQ(run(in_pod("a", "launcher")).out, "sshd \n") << "the launcher is a worker too";

  // Kubernetes ends a pod: SIGTERM for its first process, after whose end there is no other.
  test::Process job(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "./stopping"}));
  for (int rank = 0; rank < 4; ++rank) {
    job.wait_for_out(fmt::format("[{}]<stdout>:pid ", rank), test::in(kPatience));
  }
  test::Process pod(in_pod("b", "worker"));
  pod.wait_for_out("sshd -De\n", test::in(kPatience));
  ::kill(child_of(pod.pid()), SIGTERM);
  EXPECT_EQ(pod.wait(test::in(kPatience)).exit_code(), 128 + SIGTERM) << "that of sshd";
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, ":stopped after "), 4U) << result.out;
}

// ---- silence between hosts

TEST_F(SshTest, AFileSystemThatStallsIsNoSilenceAndHoldsBackOnlyTheOutput) {
  // Writing to a fifo without a reader blocks like a file system that stalls.
  const fs::path folder = shared() / "work" / "stalls" / "rank.0";
  fs::create_directories(folder);
  ASSERT_EQ(::mkfifo((folder / "stdout").c_str(), 0600), 0);
  const UniqueFd reader(::open((folder / "stdout").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto options = hvdrun_on_a({"-np", "2", "-H", "a,b", "--host-timeout", "2", "--output-filename",
                              "stalls", "sh", "-c",
                              "if test $HVD_RANK = 0; then head -c 4000000 /dev/zero; echo written"
                              " >&2; else sleep 3; echo over >&2; fi"});
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  options.output = null.get();
  test::Process job(std::move(options));
  // The job must survive without reading for longer than a host may be silent.
  job.wait_for_err("[1]<stderr>:over\n", test::in(kPatience));
  EXPECT_THAT(job.err(), Not(HasSubstr("written"))) << "rank 0 has to wait for its file";
  std::string written;
  const auto deadline = test::in(kPatience);
  while (written.size() < 4'000'000 && Clock::now() < deadline) {
    std::array<char, 65'536> buffer{};
    pollfd ready{.fd = reader.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    const ssize_t size = ::read(reader.get(), buffer.data(), buffer.size());
    if (size > 0) written.append(buffer.data(), static_cast<std::size_t>(size));
  }
  EXPECT_EQ(written, std::string(4'000'000, '\0'));
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
}

TEST_F(SshTest, ASilenceOfThreeSecondsBetweenTheHostsIsSurvived) {
  test::Process job(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "./train", "until", "over"}));
  for (int rank = 0; rank < 4; ++rank) {
    job.wait_for_out(fmt::format("rank {} of 4", rank), test::in(kPatience));
  }
  hosts().set_cable(false);
  ::usleep(3'000'000);
  hosts().set_cable(true);
  std::ofstream(shared() / "work" / "over") << "";
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
}

// ---- hvd_selftest and hvdrun status over a network

TEST_F(SshTest, TheSelftestMeasuresBothHosts) {
  const auto result = run(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "-x", "HVD_PLAN=default", "-x",
                                       "HVD_PEER_TIMEOUT_MS=20000", SELFTEST}),
                          kSelftestPatience);
  EXPECT_EQ(result.exit_code(), 0) << result.err << result.out;
  for (const char* part : {"4 ranks on 2 hosts: a (2, eth0), b (2, eth0)", "[X] as configured:",
                           "[X] TCP:", "0 on a             2 on b", "All results are right."}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST_F(SshTest, StatusShowsTheRanksOfBothHosts) {
  test::Process job(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "--status", "./train", "loop"}));
  job.wait_for_out("rank 3 of 4", test::in(kPatience));
  job.wait_for_err("this is job ", test::in(kPatience));
  const auto status = run(hosts().on("a", {HVDRUN, "status"}));
  EXPECT_EQ(status.exit_code(), 0) << status.err;
  EXPECT_THAT(status.out, AllOf(HasSubstr("4 ranks"), HasSubstr("    0 a "), HasSubstr("    3 b "),
                                HasSubstr("MiB"), Not(HasSubstr("has not joined"))));
  ASSERT_EQ(::kill(child_of(job.pid()), SIGTERM), 0);
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 128 + SIGTERM);
}

TEST_F(SshTest, SignalsReachEveryHost) {
  test::Process job(
      script_on_a("trap 'echo caught; exit 0' INT; echo ready;"
                  "while :; do sleep 0.1; done"));
  for (int rank = 0; rank < 4; ++rank) {
    job.wait_for_out(fmt::format("[{}]<stdout>:ready\n", rank), test::in(kPatience));
  }
  ASSERT_EQ(::kill(child_of(job.pid()), SIGINT), 0);
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 128 + SIGINT);
  EXPECT_EQ(count(result.out, "caught\n"), 4U);
}

/// A scheduler signals the guard, or all processes of a host, and the ranks of all hosts save.
TEST_F(SshTest, ASignalToOneHostStopsAllRanksAfterTheSameStep) {
  const std::string guard = "hvdrun";
  const std::string agent = "hvdrun-agent";
  using Names = std::vector<std::string>;
  for (const auto& [signal, names] :
       {std::pair(SIGTERM, Names{guard}), std::pair(SIGUSR1, Names{guard}),
        std::pair(SIGTERM, Names{guard, agent}),
        std::pair(SIGTERM, Names{agent, guard, "stopping"}),
        std::pair(SIGUSR1, Names{agent, guard, "stopping"})}) {
    SCOPED_TRACE(fmt::format("{} to {}", signal, names.size()));
    test::Process job(hvdrun_on_a({"-np", "4", "-H", "a:2,b:2", "./stopping"}));
    for (int rank = 0; rank < 4; ++rank) {
      job.wait_for_out(fmt::format("[{}]<stdout>:pid ", rank), test::in(kPatience));
    }
    std::vector<pid_t> pids;
    for (const std::string& name : names) pids.push_back(process_on_b(name));
    for (const pid_t pid : pids) ::kill(pid, signal);
    const auto result = job.wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    const std::string words = ":stopped after ";
    const auto at = result.out.find(words);
    ASSERT_NE(at, std::string::npos) << result.out << result.err;
    EXPECT_EQ(count(result.out, result.out.substr(at, result.out.find('\n', at) - at + 1)), 4U)
        << result.out;
  }
}

TEST_F(SshTest, ASecondRequestEndsAHostWhoseRanksDoNotStop) {
  test::Process job(script_on_a("trap 'echo caught' TERM; echo ready; while :; do sleep 0.1; done",
                                {"--grace", "0.2"}));
  for (int rank = 0; rank < 4; ++rank) {
    job.wait_for_out(fmt::format("[{}]<stdout>:ready\n", rank), test::in(kPatience));
  }
  const pid_t guard = process_on_b("hvdrun");
  ::kill(guard, SIGTERM);
  job.wait_for_out("[2]<stdout>:caught\n", test::in(kPatience));
  job.wait_for_out("[3]<stdout>:caught\n", test::in(kPatience));
  // For a second the signal still counts as the same request.
  const auto deadline = test::in(kPatience);
  while (::kill(guard, SIGTERM) == 0 && Clock::now() < deadline) ::usleep(10'000);
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 70);
  EXPECT_THAT(result.err, HasSubstr("hvdrun: the agent on b was killed by SIGTERM\n"));
}

}  // namespace
}  // namespace hvd::launcher
