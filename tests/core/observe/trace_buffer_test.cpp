#include "observe/trace_buffer.hpp"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hvd::observe {
namespace {

TEST(TraceBuffer, GivesBackWhatWasPushed) {
  TraceBuffer buffer(4096);
  const std::array<std::int64_t, 3> shape{3, 1, 1LL << 40};
  TraceEvent span;
  span.tensor = std::string_view("a\0b", 3);
  span.phase = "allreduce";
  span.algorithm = "ring";
  span.begin = Clock::time_point(std::chrono::nanoseconds(5));
  span.end = Clock::time_point(std::chrono::nanoseconds(9));
  span.dtype = DType::bf16;
  span.shape = shape;
  span.bytes = 1ULL << 50;
  span.fused = 7;
  TraceEvent mark;
  mark.kind = TraceEvent::Kind::mark;
  mark.phase = "step";
  ASSERT_TRUE(buffer.push(span));
  ASSERT_TRUE(buffer.push(mark));
  int seen = 0;
  buffer.for_each([&](const TraceEvent& event) {
    const TraceEvent& expected = seen++ == 0 ? span : mark;
    EXPECT_EQ(event.kind, expected.kind);
    EXPECT_EQ(event.tensor, expected.tensor);
    EXPECT_EQ(event.phase, expected.phase);
    EXPECT_EQ(event.algorithm, expected.algorithm);
    EXPECT_EQ(event.begin, expected.begin);
    EXPECT_EQ(event.end, expected.end);
    EXPECT_EQ(event.dtype, expected.dtype);
    EXPECT_TRUE(std::equal(event.shape.begin(), event.shape.end(), expected.shape.begin(),
                           expected.shape.end()));
    EXPECT_EQ(event.bytes, expected.bytes);
    EXPECT_EQ(event.fused, expected.fused);
  });
  EXPECT_EQ(seen, 2);
  buffer.clear();
  EXPECT_TRUE(buffer.empty());
}

TEST(TraceBuffer, RefusesWhatDoesNotFitAndKeepsTheRest) {
  TraceBuffer buffer(1000);
  TraceEvent event;
  const std::string name(100, 'n');
  event.tensor = name;
  int pushed = 0;
  while (buffer.push(event)) ++pushed;
  EXPECT_GT(pushed, 3);
  EXPECT_TRUE(buffer.half_full());
  int seen = 0;
  buffer.for_each([&](const TraceEvent& back) {
    EXPECT_EQ(back.tensor, name);
    ++seen;
  });
  EXPECT_EQ(seen, pushed);
}

TEST(TraceBuffer, CutsWhatIsTooLong) {
  TraceBuffer buffer(1 << 20);
  const std::string name(100'000, 'n');
  const std::vector<std::int64_t> shape(100, 2);
  TraceEvent event;
  event.tensor = name;
  event.shape = shape;
  ASSERT_TRUE(buffer.push(event));
  buffer.for_each([&](const TraceEvent& back) {
    EXPECT_EQ(back.tensor.size(), 65'535U);
    EXPECT_EQ(back.shape.size(), TraceEvent::kMaxDimensions);
  });
}

}  // namespace
}  // namespace hvd::observe
