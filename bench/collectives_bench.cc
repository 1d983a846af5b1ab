// zero-bench collectives: the collectives of a step with the flags and columns of nccl-tests,
// beside plain copies of the same bytes by the same number of threads in the same run.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/collective_rank.h"
#include "bench/json_file.h"
#include "bench/machine.h"
#include "bench/samples.h"
#include "bench/subcommand.h"
#include "collectives/gloo_group.h"
#include "collectives/local_group.h"
#include "collectives/rendezvous.h"
#include "collectives/socket.h"
#include "device/host_device.h"
#include "device/status.h"
#include "examples/support/flags.h"

namespace zero::bench {
namespace {

struct Options {
  std::string minbytes = "64K";
  std::string maxbytes = "16M";
  int64_t stepfactor = 4;
  int64_t iters = 20;
  int64_t warmup_iters = 2;
  int64_t check = 1;
  std::string datatype = "float";
  int64_t ranks = 4;
  int64_t repeats = 9;
  std::string collective = "all";
  std::string group = "local";
  std::string json;
  int64_t port = 29441;

  int64_t first_bytes = 0, last_bytes = 0;
  DType type = DType::kF32;
};

// "64K", "16M", "1G" or plain bytes.
absl::StatusOr<int64_t> ParseSize(const char* flag, const std::string& text) {
  const std::string units = "KMG";
  std::string digits = text;
  int64_t unit = 1;
  const size_t at = text.empty() ? std::string::npos : units.find(absl::ascii_toupper(text.back()));
  if (at != std::string::npos) {
    digits.pop_back();
    unit = int64_t{1} << (10 * (at + 1));
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number < 1 || number > (int64_t{1} << 40) / unit) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is '", text, "'; it must be bytes, 1 to 1024G, with K, M or G behind it or not"));
  }
  return number * unit;
}

// The flags of nccl-tests that are short, or have another name here.
absl::StatusOr<std::vector<std::string>> LongFlags(const std::vector<std::string>& arguments) {
  const std::map<std::string, std::string> names = {
      {"-b", "--minbytes"}, {"-e", "--maxbytes"},     {"-f", "--stepfactor"},
      {"-n", "--iters"},    {"-w", "--warmup_iters"}, {"-c", "--check"},
      {"-d", "--datatype"}, {"-g", "--ranks"},        {"--ngpus", "--ranks"}};
  std::vector<std::string> flags;
  for (const std::string& argument : arguments) {
    // "-b1M", "-b 1M", "--ngpus=4".
    const bool is_long = argument.rfind("--", 0) == 0;
    const bool is_short = !is_long && argument.size() > 1 && argument[0] == '-';
    const size_t end = is_short ? 2 : std::min(argument.find('='), argument.size());
    const auto found = names.find(argument.substr(0, end));
    if (is_short && found == names.end() && argument != "-h") {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag '", argument, "'; of nccl-tests there are -b -e -f -n -w -c -d -g"));
    }
    if (found == names.end()) {
      flags.push_back(argument);
    } else {
      flags.push_back(found->second + (is_long ? argument.substr(end) : ""));
      if (is_short && argument.size() > 2) flags.push_back(argument.substr(2));
    }
  }
  return flags;
}

// What the ranks, threads of one process, know of each other.
struct Place {
  const CollectiveRank* rank = nullptr;
  double start = 0, end = 0;  // of the calls that are timed
  int64_t wrong = 0;
};
struct Places {
  explicit Places(int64_t ranks) : of(static_cast<size_t>(ranks)), barrier(ranks) {}
  std::vector<Place> of;
  std::barrier<> barrier;  // for plain copies that meet
};

// One size of one collective: seconds of one call.
struct Row {
  Collective collective;
  int64_t part = 0;  // elements
  Samples out_of_place, in_place, copies, met;
  int64_t wrong = 0, wrong_in_place = 0;
  bool has_in_place() const { return collective == Collective::kAllGather; }
};

// The plain loop's reduction: every part is read and one is written, as a sum does, by copying each
// over the one before, in blocks that stay in the cache.
void CopyPartsPlainly(const std::vector<Place>& places, int rank, int64_t bytes) {
  constexpr int64_t kBlock = 16 << 10;
  char* const to = places[rank].rank->received() + rank * bytes;
  for (int64_t first = 0; first < bytes; first += kBlock) {
    const size_t block = static_cast<size_t>(std::min(kBlock, bytes - first));
    for (const Place& place : places) {
      std::memcpy(to + first, place.rank->sent() + rank * bytes + first, block);
    }
  }
}

// What rank `rank` copies in one call of the plain loop: the bytes that a call must read and write.
// `meet` is called before and after.
template <class F>
void CopyPlainly(const std::vector<Place>& places, int rank, const Row& row, int64_t element,
                 const F& meet) {
  const int64_t bytes = row.part * element;
  char* const received = places[rank].rank->received();
  const bool all_reduce = row.collective == Collective::kAllReduce;
  meet();
  if (all_reduce || row.collective == Collective::kReduceScatter) {
    CopyPartsPlainly(places, rank, bytes);
    meet();
    if (!all_reduce) return;
  }
  for (int64_t q = 0; q < static_cast<int64_t>(places.size()); ++q) {
    if (all_reduce && q == rank) continue;  // the sum lies where it is gathered to
    const CollectiveRank& from = *places[q].rank;
    const char* const sent =
        all_reduce ? from.received() + q * bytes
                   : from.sent() + (row.collective == Collective::kAllToAll ? rank : q) * bytes;
    std::memcpy(received + q * bytes, sent, static_cast<size_t>(bytes));
  }
  meet();
}

class Bench {
 public:
  Bench(const Options& options, ProcessGroup* group, Places* places)
      : o_(options), group_(group), places_(*places) {}

  absl::Status Initialise() {
    ZERO_ASSIGN_OR_RETURN(stream_, device_.CreateStream("meet"));
    const int64_t largest = o_.last_bytes / SizeOf(o_.type) / group_->size();
    ZERO_ASSIGN_OR_RETURN(rank_, CollectiveRank::Create(&device_, group_, o_.type, largest));
    own().rank = rank_.get();
    return Meet();
  }

  absl::Status Measure(Row* row) {
    const bool reports = group_->rank() == 0;
    if (o_.check != 0) ZERO_RETURN_IF_ERROR(Check(row));
    for (int64_t repeat = 0; repeat < o_.repeats; ++repeat) {
      ZERO_ASSIGN_OR_RETURN(const double out, Time(*row, /*in_place=*/false));
      ZERO_ASSIGN_OR_RETURN(const double copies, TimeCopies(*row, [] {}));
      ZERO_ASSIGN_OR_RETURN(const double met,
                            TimeCopies(*row, [this] { places_.barrier.arrive_and_wait(); }));
      double in = 0;
      if (row->has_in_place()) {
        ZERO_ASSIGN_OR_RETURN(in, Time(*row, /*in_place=*/true));
      }
      if (!reports) continue;
      row->out_of_place.Add(out);
      row->copies.Add(copies);
      row->met.Add(met);
      if (row->has_in_place()) row->in_place.Add(in);
    }
    return absl::OkStatus();
  }

 private:
  // Every rank is here.
  absl::Status Meet() {
    ZERO_RETURN_IF_ERROR(group_->Barrier(*stream_, "meet"));
    return stream_->Synchronize();
  }

  absl::Status Check(Row* row) {
    for (const bool in_place : {false, true}) {
      if (in_place && !row->has_in_place()) continue;
      ZERO_RETURN_IF_ERROR(rank_->Prepare(row->part));
      ZERO_RETURN_IF_ERROR(Meet());
      ZERO_RETURN_IF_ERROR(rank_->Enqueue(row->collective, row->part, in_place));
      ZERO_ASSIGN_OR_RETURN(own().wrong, rank_->Wrong(row->collective, row->part, in_place));
      ZERO_RETURN_IF_ERROR(Meet());
      int64_t all = 0;
      for (const Place& place : places_.of) all += place.wrong;
      if (group_->rank() == 0) (in_place ? row->wrong_in_place : row->wrong) = all;
      ZERO_RETURN_IF_ERROR(Meet());
    }
    return absl::OkStatus();
  }

  // Seconds of one call, from the first rank's start to the last one's end: where there are more
  // ranks than processors, no rank's own clock sees the others' turns.
  template <class F>
  absl::StatusOr<double> TimeCalls(const F& call) {
    ZERO_RETURN_IF_ERROR(Meet());
    for (int64_t i = 0; i < o_.warmup_iters; ++i) ZERO_RETURN_IF_ERROR(call());
    ZERO_RETURN_IF_ERROR(rank_->Synchronize());
    ZERO_RETURN_IF_ERROR(Meet());
    own().start = Now();
    for (int64_t i = 0; i < o_.iters; ++i) ZERO_RETURN_IF_ERROR(call());
    ZERO_RETURN_IF_ERROR(rank_->Synchronize());
    own().end = Now();
    ZERO_RETURN_IF_ERROR(Meet());
    double start = own().start, end = own().end;
    for (const Place& place : places_.of) {
      start = std::min(start, place.start);
      end = std::max(end, place.end);
    }
    return (end - start) / static_cast<double>(o_.iters);
  }

  absl::StatusOr<double> Time(const Row& row, bool in_place) {
    return TimeCalls([&] { return rank_->Enqueue(row.collective, row.part, in_place); });
  }

  template <class F>
  absl::StatusOr<double> TimeCopies(const Row& row, const F& meet) {
    return TimeCalls([&] {
      CopyPlainly(places_.of, group_->rank(), row, SizeOf(o_.type), meet);
      return absl::OkStatus();
    });
  }

  Place& own() { return places_.of[group_->rank()]; }

  const Options& o_;
  ProcessGroup* const group_;
  Places& places_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CollectiveRank> rank_;
};

// What the ranks would say of it is about a variable that nobody has set.
absl::Status CheckPort(int port) {
  ZERO_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                        Resolve(RendezvousOptions().address, port, absl::Minutes(1)));
  const int error = Listen(addresses.front()).error;
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--port ", port, " cannot be used: ", ErrnoText(error), "; choose another"));
}

// Ranks in threads that meet as processes would.
absl::Status RunGloo(const Options& o, const std::function<absl::Status(ProcessGroup*)>& body) {
  ZERO_RETURN_IF_ERROR(CheckPort(static_cast<int>(o.port)));
  const int size = static_cast<int>(o.ranks);
  std::vector<absl::Status> statuses(o.ranks);
  std::vector<std::unique_ptr<Rendezvous>> meetings(static_cast<size_t>(size));
  const auto run = [&](int rank) -> absl::Status {
    RendezvousOptions options;
    options.rank = rank;
    options.size = size;
    options.port = static_cast<int>(o.port);
    options.deadline = absl::Minutes(1);
    ZERO_ASSIGN_OR_RETURN(meetings[rank], Rendezvous::Create(options));
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group,
                          GlooGroup::Create({meetings[rank].get(), options.deadline}));
    const absl::Status status = body(group.get());
    if (!status.ok()) group->Abort(status);
    return status;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = run(rank);
      if (meetings[rank] != nullptr) (void)meetings[rank]->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Rank 0's, which the others hang on, last.
  for (int rank = size - 1; rank >= 0; --rank) meetings[rank].reset();
  for (const absl::Status& status : statuses) ZERO_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status RunGroup(const Options& o, const std::function<absl::Status(ProcessGroup*)>& body) {
  if (o.group == "gloo") return RunGloo(o, body);
  LocalWorld world(static_cast<int>(o.ranks));
  return RunRanks(world, body);
}

void PrintTable(const Options& o, const std::vector<Row>& rows) {
  std::printf("%s\n%s group: %lld ranks as threads; median of %lld repeats of %lld calls\n",
              CpuName().c_str(), o.group.c_str(), static_cast<long long>(o.ranks),
              static_cast<long long>(o.repeats), static_cast<long long>(o.iters));
  std::printf(
      "size: bytes that are gathered, exchanged or reduced; algbw = size / time; busbw = algbw x\n"
      "(N-1)/N, twice that for all_reduce; copy: share of the speed of as many threads that copy\n"
      "as many bytes without waiting for each other; meet: of those that meet before and "
      "after\n\n");
  std::printf("%-15s %10s %10s %8s %6s %10s %7s %7s %6s %10s %7s %7s %6s %6s %6s\n", "", "size",
              "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "in-place", "algbw",
              "busbw", "#wrong", "copy", "meet");
  std::printf("%-15s %10s %10s %8s %6s %10s %7s %7s %6s %10s %7s %7s %6s %6s %6s\n", "collective",
              "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
              "(GB/s)", "", "(%)", "(%)");
  for (const Row& row : rows) {
    const int64_t bytes = row.part * SizeOf(o.type) * o.ranks;
    const double factor = BusFactor(row.collective, static_cast<int>(o.ranks));
    const bool sums =
        row.collective == Collective::kReduceScatter || row.collective == Collective::kAllReduce;
    const double time = row.out_of_place.median();
    const double algbw = static_cast<double>(bytes) / time / 1e9;
    const std::string wrong = o.check != 0 ? absl::StrCat(row.wrong) : "N/A";
    std::printf("%-15s %10lld %10lld %8s %6s %10.1f %7.2f %7.2f %6s", Name(row.collective),
                static_cast<long long>(bytes), static_cast<long long>(row.part), o.datatype.c_str(),
                sums ? "sum" : "none", time * 1e6, algbw, algbw * factor, wrong.c_str());
    if (row.has_in_place()) {
      const double in = row.in_place.median();
      const double in_algbw = static_cast<double>(bytes) / in / 1e9;
      std::printf(" %10.1f %7.2f %7.2f %6s", in * 1e6, in_algbw, in_algbw * factor,
                  o.check != 0 ? absl::StrCat(row.wrong_in_place).c_str() : "N/A");
    } else {
      std::printf(" %10s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    }
    std::printf(" %6.0f %6.0f\n", 100 * row.copies.median() / time, 100 * row.met.median() / time);
  }
}

absl::Status WriteJson(const Options& o, const std::vector<Row>& rows) {
  std::ofstream file(o.json);
  for (const Row& row : rows) {
    const int64_t bytes = row.part * SizeOf(o.type) * o.ranks;
    const double algbw = static_cast<double>(bytes) / row.out_of_place.median() / 1e9;
    file << absl::StrCat("{\"bench\":\"collectives\",\"device\":\"host\",\"cpu\":\"", CpuName(),
                         "\",\"group\":\"", o.group, "\",\"ranks\":", o.ranks, ",\"collective\":\"",
                         Name(row.collective), "\",\"bytes\":", bytes, ",\"type\":\"", o.datatype)
         << absl::StrCat(
                "\",\"median_us\":", row.out_of_place.median() * 1e6,
                ",\"min_us\":", row.out_of_place.min() * 1e6,
                ",\"max_us\":", row.out_of_place.max() * 1e6, ",\"algbw_GBps\":", algbw,
                ",\"busbw_GBps\":", algbw * BusFactor(row.collective, static_cast<int>(o.ranks)))
         << absl::StrCat(",\"copies_median_us\":", row.copies.median() * 1e6,
                         ",\"copies_min_us\":", row.copies.min() * 1e6,
                         ",\"met_median_us\":", row.met.median() * 1e6,
                         ",\"met_min_us\":", row.met.min() * 1e6,
                         ",\"wrong\":", o.check != 0 ? absl::StrCat(row.wrong) : "null", "}\n");
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("--json: cannot write ", o.json));
}

absl::Status Run(const Options& o) {
  std::vector<Row> rows;
  for (const Collective collective : kCollectives) {
    if (o.collective != "all" && o.collective != Name(collective)) continue;
    for (int64_t bytes = o.first_bytes; bytes <= o.last_bytes; bytes *= o.stepfactor) {
      const int64_t part = bytes / SizeOf(o.type) / o.ranks;
      if (part > 0) rows.push_back({collective, part, {}, {}, {}, {}});
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--maxbytes ", o.maxbytes, " is less than an element for each rank"));
  }
  Places places(o.ranks);
  ZERO_RETURN_IF_ERROR(RunGroup(o, [&](ProcessGroup* group) -> absl::Status {
    Bench bench(o, group, &places);
    ZERO_RETURN_IF_ERROR(bench.Initialise());
    std::vector<Row> others = rows;  // rank 0's count
    std::vector<Row>& mine = group->rank() == 0 ? rows : others;
    for (Row& row : mine) ZERO_RETURN_IF_ERROR(bench.Measure(&row));
    return absl::OkStatus();
  }));
  PrintTable(o, rows);
  for (const Row& row : rows) {
    if (row.wrong + row.wrong_in_place == 0) continue;
    return absl::InternalError(absl::StrCat(Name(row.collective), ": ",
                                            row.wrong + row.wrong_in_place, " elements are wrong"));
  }
  return o.json.empty() ? absl::OkStatus() : WriteJson(o, rows);
}

}  // namespace

absl::Status RunCollectives(const std::vector<std::string>& arguments) {
  Options o;
  support::FlagTable flags;
  flags.AddText("minbytes", &o.minbytes, "BYTES", "-b: smallest size; K, M, G understood");
  flags.AddText("maxbytes", &o.maxbytes, "BYTES", "-e: largest size");
  flags.AddCount("stepfactor", &o.stepfactor, 2, 1 << 20, "-f: each size is this times the last");
  flags.AddCount("iters", &o.iters, 1, 1 << 20, "-n: calls timed together");
  flags.AddCount("warmup_iters", &o.warmup_iters, 0, 1 << 20, "-w: calls before them");
  flags.AddCount("check", &o.check, 0, 1, "-c: count elements that are wrong");
  flags.AddChoice("datatype", &o.datatype, {"float", "bfloat16"}, "-d: element type");
  flags.AddCount("ranks", &o.ranks, 1, 256, "-g: ranks, as threads");
  flags.AddCount("repeats", &o.repeats, 1, 1 << 20, "times that each row is measured");
  flags.AddChoice("collective", &o.collective,
                  {"all", "all_gather", "alltoall", "reduce_scatter", "all_reduce"},
                  "what to measure");
  flags.AddChoice("group", &o.group, {"local", "gloo"},
                  "threads that copy, or what processes use, over loopback");
  flags.AddCount("port", &o.port, 1, 65535, "where the ranks of --group gloo meet");
  flags.AddText("json", &o.json, "FILE", "file for one JSON object a row");
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all, LongFlags(arguments));
  ZERO_RETURN_IF_ERROR(flags.Parse(all));
  if (flags.help()) {
    std::printf("usage: zero-bench collectives [FLAGS]\n\n%s", flags.Help().c_str());
    return absl::OkStatus();
  }
  ZERO_ASSIGN_OR_RETURN(o.first_bytes, ParseSize("--minbytes", o.minbytes));
  ZERO_ASSIGN_OR_RETURN(o.last_bytes, ParseSize("--maxbytes", o.maxbytes));
  if (o.first_bytes > o.last_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--minbytes ", o.minbytes, " is more than --maxbytes ", o.maxbytes));
  }
  ZERO_RETURN_IF_ERROR(CheckJsonFile(o.json));
  o.type = o.datatype == "float" ? DType::kF32 : DType::kBF16;
  return Run(o);
}

}  // namespace zero::bench
