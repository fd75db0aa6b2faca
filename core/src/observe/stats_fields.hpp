// Lists the fields of `StepSample`, and those of `Stats` outside of `StepStats`, with the names
// that they have in text.
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

template <class Value>
struct StatsField {
  std::string_view name;    ///< in JSON
  std::string_view metric;  ///< in Prometheus text, without "hvd_" and "_total"
  Value Stats::*value;
  std::string_view help;
};

inline constexpr std::array<StatsField<std::uint64_t>, 16> kStatsCounts{{
    {"submitted", "operations_submitted", &Stats::submitted, "Operations submitted."},
    {"completed", "operations_completed", &Stats::completed, "Operations without error."},
    {"failed", "operations_failed", &Stats::failed, "Operations that ended with an error."},
    {"collectives_started", "collectives_started", &Stats::collectives_started,
     "Backend calls begun."},
    {"collectives", "collectives", &Stats::collectives, "Backend calls finished."},
    {"fused_tensors", "fused_tensors", &Stats::fused_tensors,
     "Tensors that shared a backend call with another."},
    {"bytes", "collective_bytes", &Stats::bytes, "Input bytes of backend calls."},
    {"control_messages_sent", "control_messages_sent", &Stats::control_messages_sent,
     "Negotiation messages sent."},
    {"control_messages_received", "control_messages_received", &Stats::control_messages_received,
     "Negotiation messages received."},
    {"fused_bytes", "fused_bytes", &Stats::fused_bytes, "Input bytes of fused backend calls."},
    {"schedule_hits", "schedule_hits", &Stats::schedule_hits,
     "Operations run from the frozen schedule."},
    {"freezes", "schedule_freezes", &Stats::freezes, "Times a schedule was frozen."},
    {"thaws", "schedule_thaws", &Stats::thaws, "Times a frozen schedule was given up."},
    {"stall_warnings", "stall_warnings", &Stats::stall_warnings, "Operations reported as stalled."},
    {"timeline_dropped", "timeline_dropped_events", &Stats::timeline_dropped,
     "Timeline events without room."},
    {"negotiated", "operations_negotiated", &Stats::negotiated, "Operations negotiated."},
}};

inline constexpr std::array<StatsField<std::chrono::nanoseconds>, 5> kStatsTimes{{
    {"communication", "communication", &Stats::communication, "Time a backend ran."},
    {"exposed", "exposed_communication", &Stats::exposed,
     "Time a user thread was blocked on communication."},
    {"negotiation", "negotiation", &Stats::negotiation,
     "Time from submission to schedule, summed over operations."},
    {"ready_wait", "ready_wait", &Stats::ready_wait, "Time waited for data to be ready."},
    {"pack", "pack", &Stats::pack, "Time of copies into and out of fusion memory."},
}};

}  // namespace hvd::observe
