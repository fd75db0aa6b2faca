#include "fake_gpu/runtime.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "fake_gpu/device_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"

namespace hvd::test::fake_gpu {

void Runtime::reset(int device_count) {
  // Streams are joined outside the lock, by the last thread that used them.
  std::map<const void*, std::shared_ptr<Stream>> ended;
  std::map<int, std::shared_ptr<Stream>> ended_defaults;
  std::map<const void*, std::shared_ptr<Event>> forgotten;
  const std::lock_guard lock(mutex_);
  ended.swap(streams_);
  ended_defaults.swap(default_streams_);
  forgotten.swap(events_);
  broken_.clear();
  without_code_.clear();
  with_kernel_.clear();
  contexts_.clear();
  violations_.clear();
  calls_.clear();
  on_next_.clear();
  copied_bytes_ = 0;
  device_count_ = device_count;
  error_of_count_ = cudaSuccess;
}

int Runtime::device_count() const {
  const std::lock_guard lock(mutex_);
  return device_count_;
}

void Runtime::refuse_count(cudaError_t error) {
  const std::lock_guard lock(mutex_);
  error_of_count_ = error;
}

cudaError_t Runtime::error_of_count() const {
  const std::lock_guard lock(mutex_);
  return error_of_count_;
}

void* Runtime::add_stream(int device) {
  const std::lock_guard lock(mutex_);
  void* const handle = reinterpret_cast<void*>(next_handle_ += 16);
  streams_.emplace(handle, std::make_shared<Stream>(device));
  return handle;
}

std::shared_ptr<Stream> Runtime::stream(const void* handle) {
  const std::lock_guard lock(mutex_);
  return find_stream(handle);
}

std::shared_ptr<Stream> Runtime::find_stream(const void* handle) {
  if (handle == nullptr) {
    contexts_.insert(current_device());
    std::shared_ptr<Stream>& stream = default_streams_[current_device()];
    if (!stream) stream = std::make_shared<Stream>(current_device());
    return stream;
  }
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second;
}

bool Runtime::remove_stream(const void* handle) {
  std::shared_ptr<Stream> ended;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return false;
  ended = std::move(found->second);
  streams_.erase(found);
  return true;
}

std::vector<std::shared_ptr<Stream>> Runtime::streams_of(int device) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Stream>> found;
  for (const auto& [handle, stream] : streams_) {
    if (stream->device() == device) found.push_back(stream);
  }
  const auto standard = default_streams_.find(device);
  if (standard != default_streams_.end()) found.push_back(standard->second);
  return found;
}

void* Runtime::add_event(int device) {
  const std::lock_guard lock(mutex_);
  void* const handle = reinterpret_cast<void*>(next_handle_ += 16);
  auto event = std::make_shared<Event>();
  event->device = device;
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Runtime::record(const void* event, const void* stream) {
  const std::lock_guard lock(mutex_);
  const auto mark = events_.find(event);
  const std::shared_ptr<Stream> line = find_stream(stream);
  if (mark == events_.end() || !line) return false;
  if (mark->second->device != line->device()) return false;
  auto recorded = std::make_shared<Event>(*mark->second);  // a thread may still read the old one
  recorded->stream = line;
  recorded->ticket = line->tail();
  mark->second = std::move(recorded);
  return true;
}

std::shared_ptr<Event> Runtime::event(const void* handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second;
}

bool Runtime::remove_event(const void* handle) {
  std::shared_ptr<Event> forgotten;
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  if (found == events_.end()) return false;
  forgotten = std::move(found->second);
  events_.erase(found);
  return true;
}

void Runtime::break_device(int device) {
  const std::lock_guard lock(mutex_);
  broken_.insert(device);
}

bool Runtime::is_broken(int device) const {
  const std::lock_guard lock(mutex_);
  return broken_.count(device) > 0;
}

void Runtime::lack_code(int device) {
  const std::lock_guard lock(mutex_);
  without_code_.insert(device);
}

bool Runtime::load_kernel(int device) {
  const std::lock_guard lock(mutex_);
  if (without_code_.contains(device)) return false;
  with_kernel_.insert(device);
  return true;
}

bool Runtime::has_kernel(int device) const {
  const std::lock_guard lock(mutex_);
  return with_kernel_.contains(device);
}

void Runtime::make_context(int device) {
  const std::lock_guard lock(mutex_);
  contexts_.insert(device);
}

std::set<int> Runtime::contexts() const {
  const std::lock_guard lock(mutex_);
  return contexts_;
}

void Runtime::violate(std::string what) {
  const std::lock_guard lock(mutex_);
  violations_.push_back(std::move(what));
}

std::vector<std::string> Runtime::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

void Runtime::note(std::string_view function) {
  std::function<void()> then;
  {
    const std::lock_guard lock(mutex_);
    ++calls_[std::string(function)];
    const auto found = on_next_.find(function);
    if (found != on_next_.end()) then = std::move(on_next_.extract(found).mapped());
  }
  if (then) then();
}

void Runtime::on_next(std::string_view function, std::function<void()> then) {
  const std::lock_guard lock(mutex_);
  on_next_[std::string(function)] = std::move(then);
}

int Runtime::calls(std::string_view function) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

void Runtime::note_copy(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  copied_bytes_ += bytes;
}

std::size_t Runtime::copied_bytes() const {
  const std::lock_guard lock(mutex_);
  return copied_bytes_;
}

std::vector<std::string> Runtime::leaks() const {
  const std::lock_guard lock(mutex_);
  // What was in a lost context has gone with it.
  const auto is_left = [&](int device) { return broken_.count(device) == 0; };
  const auto streams = std::count_if(streams_.begin(), streams_.end(), [&](const auto& each) {
    return is_left(each.second->device());
  });
  const auto events = std::count_if(events_.begin(), events_.end(),
                                    [&](const auto& each) { return is_left(each.second->device); });
  std::vector<std::string> lines;
  if (streams > 0) lines.push_back(std::to_string(streams) + " streams");
  if (events > 0) lines.push_back(std::to_string(events) + " events");
  return lines;
}

Runtime& runtime() {
  static Runtime state;
  return state;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

int used_device() {
  runtime().make_context(current_device());
  return current_device();
}

void reset(int device_count) {
  reset_nccl();
  runtime().reset(device_count);
  device_memory().clear();
}

std::set<int> contexts() { return runtime().contexts(); }

std::vector<std::string> violations() { return runtime().violations(); }

std::vector<std::string> leaks() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    std::vector<std::string> lines = runtime().leaks();
    for (std::string& line : device_memory().leaks()) lines.push_back(std::move(line));
    for (std::string& line : nccl_leaks()) lines.push_back(std::move(line));
    if (lines.empty() || std::chrono::steady_clock::now() > deadline) return lines;
    std::this_thread::yield();
  }
}

int calls(std::string_view function) { return runtime().calls(function); }

void break_device(int device) { runtime().break_device(device); }

void refuse_count(cudaError_t error) { runtime().refuse_count(error); }

void lack_code(int device) { runtime().lack_code(device); }

void note(std::string_view function) { runtime().note(function); }

void on_next(std::string_view function, std::function<void()> then) {
  runtime().on_next(function, std::move(then));
}

std::size_t copied_bytes() { return runtime().copied_bytes(); }

void note_copy(const void* dst, const void* src, std::size_t size) {
  if (src != nullptr && src != dst) runtime().note_copy(size);
}

void violate(std::string what) { runtime().violate(std::move(what)); }

}  // namespace hvd::test::fake_gpu
