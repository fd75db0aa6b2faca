#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <hvd_test/process.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::test {
namespace {

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int ends[2];
  checked(::pipe2(ends, O_CLOEXEC), "pipe2");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> environment_with(
    const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (!changes.contains(variable.substr(0, variable.find('=')))) variables.push_back(variable);
  }
  for (const auto& [name, value] : changes) {
    if (value) variables.push_back(name + "=" + *value);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct ChildPlan {
  char** arguments;
  char** variables;
  const ProcessOptions* options;
  int input;
  int output;
  int error;
};

// Runs after fork, so it makes only async-signal-safe calls.
[[noreturn]] void become(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(plan.input, 0);
  ::dup2(plan.output, 1);
  ::dup2(plan.error, 2);
  if (plan.options->close_output) ::close(1);
  for (const int fd : plan.options->inherited) ::fcntl(fd, F_SETFD, 0);
  const char* directory = plan.options->directory.c_str();
  if (*directory == '\0' || ::chdir(directory) == 0) {
    ::execvpe(plan.arguments[0], plan.arguments, plan.variables);
  }
  ::_exit(127);
}

/// Appends the available bytes. Returns false at the end of the stream.
bool read_some(const UniqueFd& from, std::string& to) {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(from.get(), buffer.data(), buffer.size());
  if (size > 0) to.append(buffer.data(), static_cast<std::size_t>(size));
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

int milliseconds_until(Deadline deadline) {
  using std::chrono::ceil;
  using std::chrono::milliseconds;
  const auto left = ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<milliseconds::rep>(left, 0));
}

}  // namespace

bool ProcessResult::exited() const noexcept { return WIFEXITED(status); }
int ProcessResult::exit_code() const noexcept {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
int ProcessResult::signal() const noexcept { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }

Process::Process(ProcessOptions options) {
  auto variables = environment_with(options.environment);
  const auto argument_list = pointers(options.arguments);
  const auto variable_list = pointers(variables);
  auto [input_read, input_write] = make_pipe();
  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  checked(static_cast<int>(::write(input_write.get(), options.input.data(), options.input.size())),
          "write");
  ChildPlan plan{.arguments = const_cast<char**>(argument_list.data()),
                 .variables = const_cast<char**>(variable_list.data()),
                 .options = &options,
                 .input = input_read.get(),
                 .output = options.output >= 0 ? options.output : out_write.get(),
                 .error = err_write.get()};
  pid_ = checked(::fork(), "fork");
  if (pid_ == 0) become(plan);
  ::setpgid(pid_, pid_);
  over_ = UniqueFd(checked(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)), "pidfd_open"));
  for (const UniqueFd* end : {&out_read, &err_read}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  out_ = std::move(out_read);
  err_ = std::move(err_read);
}

Process::~Process() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Process::signal(int number) const { checked(::kill(pid_, number), "kill"); }

void Process::wait_for_out(const std::string& text, Deadline deadline) {
  wait_for(result_.out, text, deadline);
}

void Process::wait_for_err(const std::string& text, Deadline deadline) {
  wait_for(result_.err, text, deadline);
}

void Process::wait_for(const std::string& captured, const std::string& text, Deadline deadline) {
  while (captured.find(text) == std::string::npos) {
    if (!pump(deadline)) {
      throw std::runtime_error("it ended without writing '" + text + "'; it wrote:\n" +
                               result_.out + result_.err);
    }
  }
}

ProcessResult Process::wait(Deadline deadline) {
  while (pump(deadline)) {
  }
  checked(::waitpid(pid_, &result_.status, 0), "waitpid");
  pid_ = -1;
  return std::move(result_);
}

/// Reads once. Returns false when the process has ended and its whole output has been read.
/// Processes that it left behind may hold the streams open, so the end of the streams does not
/// count.
bool Process::pump(Deadline deadline) {
  std::array<pollfd, 3> polled = {pollfd{out_ ? out_.get() : -1, POLLIN, 0},
                                  pollfd{err_ ? err_.get() : -1, POLLIN, 0},
                                  pollfd{over_.get(), POLLIN, 0}};
  const int ready = ::poll(polled.data(), polled.size(), milliseconds_until(deadline));
  if (ready < 0 && errno == EINTR) return true;
  if (ready == 0) {
    throw std::runtime_error("it did not do so before the deadline; it wrote:\n" + result_.out +
                             result_.err);
  }
  if (polled[0].revents != 0 && !read_some(out_, result_.out)) out_.reset();
  if (polled[1].revents != 0 && !read_some(err_, result_.err)) err_.reset();
  const bool read_something = polled[0].revents != 0 || polled[1].revents != 0;
  return polled[2].revents == 0 || read_something;
}

ProcessResult run_process(ProcessOptions options, Deadline deadline) {
  return Process(std::move(options)).wait(deadline);
}

Lifeline::Lifeline() {
  auto [read, write] = make_pipe();
  read_ = std::move(read);
  write_ = std::move(write);
}

bool Lifeline::all_gone(Deadline deadline) {
  write_.reset();
  pollfd end{.fd = read_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, milliseconds_until(deadline)) == 1;
}

}  // namespace hvd::test
