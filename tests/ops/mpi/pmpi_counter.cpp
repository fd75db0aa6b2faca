// Loaded with LD_PRELOAD: counts the MPI calls of a program that move data and their bytes, through
// MPI's profiling interface, and writes them as JSON to $HVD_TEST_PMPI_JSON with the rank appended
// ("F.0", "F.1", …) when MPI is finalised, or else when the process exits. `odd_bytes` are those of
// calls whose size is not a power of two. The library measures MPI only with powers of two.
// With $HVD_TEST_PMPI_FUNNELED set, MPI offers MPI_THREAD_FUNNELED only.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include <mpi.h>

namespace {

enum Counted {
  kIallreduce,
  kIbcast,
  kIallgatherv,
  kIreduceScatter,
  kIsend,
  kIbarrier,
  kAllreduce,
  kBcast,
  kCount
};
constexpr std::array<const char*, kCount> kNames = {
    "MPI_Iallreduce", "MPI_Ibcast",   "MPI_Iallgatherv", "MPI_Ireduce_scatter",
    "MPI_Isend",      "MPI_Ibarrier", "MPI_Allreduce",   "MPI_Bcast"};

class Counter {
 public:
  ~Counter() { write(); }

  void add(Counted function, int count, MPI_Datatype type) {
    int size = 0;
    if (type != MPI_DATATYPE_NULL) PMPI_Type_size(type, &size);
    Line& line = lines_[function];
    ++line.calls;
    const auto bytes =
        static_cast<unsigned long long>(count) * static_cast<unsigned long long>(size);
    line.bytes += bytes;
    if ((bytes & (bytes - 1)) != 0) line.odd_bytes += bytes;
  }

  void initialized(int level) {
    thread_level_ = level;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  }

  void finalized() {
    ++finalizations_;
    write();
  }

 private:
  struct Line {
    unsigned long long calls = 0;
    unsigned long long bytes = 0;
    unsigned long long odd_bytes = 0;
  };

  void write() const {
    const char* path = std::getenv("HVD_TEST_PMPI_JSON");
    if (path == nullptr || rank_ < 0) return;
    std::FILE* file = std::fopen((std::string(path) + "." + std::to_string(rank_)).c_str(), "w");
    if (file == nullptr) return;
    std::fprintf(file, "{\"rank\": %d, \"thread_level\": %d, \"finalizations\": %d", rank_,
                 thread_level_, finalizations_);
    for (int i = 0; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::fprintf(file, ", \"%s\": {\"calls\": %llu, \"bytes\": %llu, \"odd_bytes\": %llu}",
                   kNames[at], lines_[at].calls, lines_[at].bytes, lines_[at].odd_bytes);
    }
    std::fprintf(file, "}\n");
    std::fclose(file);
  }

  std::array<Line, kCount> lines_{};
  int rank_ = -1;
  int thread_level_ = -1;
  int finalizations_ = 0;
};

Counter counter;

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  if (std::getenv("HVD_TEST_PMPI_FUNNELED") != nullptr) required = MPI_THREAD_FUNNELED;
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) counter.initialized(*provided);
  return result;
}

int MPI_Finalize() {
  counter.finalized();
  return PMPI_Finalize();
}

int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  counter.add(kIallreduce, count, type);
  return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  counter.add(kIbcast, count, type);
  return PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Iallgatherv(const void* in, int count, MPI_Datatype type, void* out, const int counts[],
                    const int offsets[], MPI_Datatype out_type, MPI_Comm comm,
                    MPI_Request* request) {
  counter.add(kIallgatherv, count, type);
  return PMPI_Iallgatherv(in, count, type, out, counts, offsets, out_type, comm, request);
}

int MPI_Ireduce_scatter(const void* in, void* out, const int counts[], MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm, MPI_Request* request) {
  int ranks = 0;
  PMPI_Comm_size(comm, &ranks);
  counter.add(kIreduceScatter, std::accumulate(counts, counts + ranks, 0), type);
  return PMPI_Ireduce_scatter(in, out, counts, type, op, comm, request);
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  counter.add(kIsend, count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  counter.add(kIbarrier, 0, MPI_DATATYPE_NULL);
  return PMPI_Ibarrier(comm, request);
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  counter.add(kAllreduce, count, type);
  return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  counter.add(kBcast, count, type);
  return PMPI_Bcast(data, count, type, root, comm);
}

}  // extern "C"
