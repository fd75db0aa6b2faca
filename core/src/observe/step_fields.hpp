// The fields of `StepSample` as a list, with the names they have in text.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include <hvd/core/stats.hpp>

namespace hvd::observe {

template <class Value>
struct StepField {
  std::string_view name;
  Value StepSample::*value;
  std::string_view help;
};

inline constexpr std::array<StepField<std::chrono::nanoseconds>, 7> kStepTimes{{
    {"duration", &StepSample::duration, "Time between two step marks."},
    {"compute", &StepSample::compute, "Step time less exposed communication."},
    {"communication", &StepSample::communication, "Time a backend ran."},
    {"exposed", &StepSample::exposed, "Time a user thread was blocked on communication."},
    {"negotiation", &StepSample::negotiation, "Time from submission to schedule, summed."},
    {"ready_wait", &StepSample::ready_wait, "Time waited for data to be ready."},
    {"pack", &StepSample::pack, "Time of copies into and out of fusion memory."},
}};

inline constexpr std::array<StepField<std::uint64_t>, 7> kStepCounts{{
    {"operations", &StepSample::operations, "Operations completed."},
    {"negotiated", &StepSample::negotiated, "Operations negotiated."},
    {"schedule_hits", &StepSample::schedule_hits, "Operations run from the frozen schedule."},
    {"collectives", &StepSample::collectives, "Backend calls finished."},
    {"bytes", &StepSample::bytes, "Input bytes of backend calls."},
    {"fused_bytes", &StepSample::fused_bytes, "Input bytes of fused backend calls."},
    {"messages", &StepSample::messages, "Control messages sent and received."},
}};

}  // namespace hvd::observe
