#include "two_hosts.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

/// Process 1 of a host. Its arguments: the host's name, its address, the shared directory. It says
/// "born" when its namespaces are there and continues when its end of the cable has arrived. The
/// first sshd goes to the background once it listens; process 1 becomes another, on a port that
/// nobody uses, because an sshd also waits for the orphans that process 1 inherits. The user's
/// .bashrc, which bash reads under sshd, is hidden: what it starts may hold a lock of the whole
/// machine when a test kills the host, as `pyenv init` does, and every later test would wait for
/// it.
constexpr const char* kInit = R"(
set -e
hostname "$1"
mount --make-rprivate /
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mkdir /run/sshd
mkdir -p /root/.ssh
mount -t tmpfs -o mode=700 none /root/.ssh
cp "$3/key" /root/.ssh/id_ed25519
chmod 600 /root/.ssh/id_ed25519
sed 's/^/a,b,10.77.0.1,10.77.0.2 /' "$3/host_key.pub" > /root/.ssh/known_hosts
mount --bind "$3/hosts" /etc/hosts
if [ -e /root/.bashrc ]; then mount --bind /dev/null /root/.bashrc; fi
echo born
read go < "$3/$1.go"
ip link set lo up
ip address add "$2/24" dev eth0
ip link set eth0 up
/usr/sbin/sshd -f "$3/sshd_config" -E "$3/$1.log"
echo up
exec /usr/sbin/sshd -D -p 2222 -f "$3/sshd_config" -E "$3/$1.log"
)";

void must(std::vector<std::string> command) {
  const std::string name = command.front();
  test::ProcessOptions options;
  options.arguments = std::move(command);
  const auto result = run(std::move(options));
  if (result.exit_code() != 0) throw std::runtime_error(name + ": " + result.out + result.err);
}

/// A process may end while its file is read. The read then fails, which would make iterators throw.
std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

fs::path process_namespace(pid_t pid) {
  std::error_code ended;
  return fs::read_symlink(fmt::format("/proc/{}/ns/pid", pid), ended);
}

}  // namespace

std::string TwoHosts::missing() {
  if (::geteuid() != 0) return "root";
  for (const char* program : {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen",
                              "/usr/bin/unshare", "/usr/bin/nsenter"}) {
    if (!fs::exists(program)) return program;
  }
  test::ProcessOptions options;
  options.arguments = {
      "unshare",      "--net",
      "--uts",        "--mount",
      "--pid",        "--fork",
      "--mount-proc", "sh",
      "-c",           "ip link add x type veth peer name y && mount -t tmpfs none /run"};
  return run(std::move(options)).exit_code() == 0 ? "" : "namespaces with veth and mounts";
}

TwoHosts::TwoHosts() {
  fs::create_directory(shared_.path() / "work");
  fs::permissions(shared_.path(), fs::perms::owner_all);
  make_keys();
  start("a", a_, init_a_);
  start("b", b_, init_b_);
  const auto in_a = [&](std::vector<std::string> command) {
    command.insert(command.begin(), {"nsenter", "-t", std::to_string(init_a_), "-n"});
    must(std::move(command));
  };
  in_a({"ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far"});
  in_a({"ip", "link", "set", "far", "netns", std::to_string(init_b_), "name", "eth0"});
  for (const char* host : {"a", "b"}) {
    std::ofstream(shared_.path() / fmt::format("{}.go", host)) << "go\n";
    (*host == 'a' ? a_ : b_)->wait_for_out("up\n", test::in(kPatience));
  }
}

TwoHosts::~TwoHosts() = default;

void TwoHosts::make_keys() const {
  const auto path = [&](const char* name) { return (shared_.path() / name).string(); };
  must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path("key")});
  must({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path("host_key")});
  std::ofstream(path("hosts")) << "127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n";
  std::ofstream(path("sshd_config"))
      << "HostKey " << path("host_key") << "\nAuthorizedKeysFile " << path("key.pub")
      << "\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
         "MaxStartups 100\nPidFile none\nLogLevel DEBUG1\n";
}

void TwoHosts::start(const std::string& host, std::unique_ptr<test::Process>& process,
                     pid_t& init) const {
  shared_.make_fifo(host + ".go");
  test::ProcessOptions options;
  options.arguments = {"unshare",
                       "--net",
                       "--uts",
                       "--mount",
                       "--pid",
                       "--fork",
                       "--mount-proc",
                       "--kill-child",
                       "sh",
                       "-c",
                       kInit,
                       "init",
                       host,
                       host == "a" ? "10.77.0.1" : "10.77.0.2",
                       shared_.path().string()};
  process = std::make_unique<test::Process>(std::move(options));
  process->wait_for_out("born\n", test::in(kPatience));
  init = child_of(process->pid());
}

pid_t TwoHosts::init_of(const std::string& host) const { return host == "a" ? init_a_ : init_b_; }

test::ProcessOptions TwoHosts::on(const std::string& host, std::vector<std::string> command) const {
  // The shell changes to a directory of that host and then executes the command.
  command.insert(command.begin(),
                 {"nsenter", "-t", std::to_string(init_of(host)), "-n", "-u", "-m", "-p", "sh",
                  "-c", "cd \"$0\" && exec \"$@\"", (shared_.path() / "work").string()});
  test::ProcessOptions options;
  options.arguments = std::move(command);
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  return options;
}

void TwoHosts::set_cable(bool plugged) const {
  must({"nsenter", "-t", std::to_string(init_a_), "-n", "ip", "link", "set", "eth0",
        plugged ? "up" : "down"});
}

std::vector<pid_t> TwoHosts::processes(const std::string& host) const {
  const fs::path wanted = process_namespace(init_of(host));
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    const pid_t pid = std::stoi(name);
    if (process_namespace(pid) == wanted && name_of(pid) != "sshd") found.push_back(pid);
  }
  return found;
}

std::string TwoHosts::left() const {
  std::string lines;
  for (const char* host : {"a", "b"}) {
    for (const pid_t pid : processes(host)) {
      lines += fmt::format("{}: {} {}\n", host, pid, command_of(pid));
    }
  }
  return lines;
}

bool TwoHosts::all_gone(Deadline deadline) const {
  // Nothing tells when a process of another namespace is over but looking.
  while (!left().empty()) {
    if (Clock::now() > deadline) return false;
    ::usleep(10'000);
  }
  return true;
}

std::vector<std::string> TwoHosts::sockets(const std::string& host) const {
  std::ifstream table(fmt::format("/proc/{}/net/unix", init_of(host)));
  std::vector<std::string> names;
  for (std::string line; std::getline(table, line);) {
    const auto name = line.find_first_of("@/");
    if (name != std::string::npos) names.push_back(line.substr(name));
  }
  return names;
}

std::vector<std::string> TwoHosts::shared_memory(const std::string& host) const {
  std::vector<std::string> names;
  for (const auto& entry :
       fs::directory_iterator(fmt::format("/proc/{}/root/dev/shm", init_of(host)))) {
    names.push_back(entry.path().filename());
  }
  return names;
}

std::string TwoHosts::log(const std::string& host) const { return shared_.read(host + ".log"); }

pid_t child_of(pid_t pid) {
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid, pid));
  pid_t child = -1;
  children >> child;
  return child;
}

std::string name_of(pid_t pid) {
  std::string name = read_all(fmt::format("/proc/{}/comm", pid));
  if (!name.empty()) name.pop_back();
  return name;
}

char state_of(pid_t pid) {
  const std::string stat = read_all(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos ? '?' : stat.at(end_of_name + 2);
}

std::string command_of(pid_t pid) {
  std::string words = read_all(fmt::format("/proc/{}/cmdline", pid));
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

}  // namespace hvd::launcher
