// Streams and events of the cudart stand-in.
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/standin/cudart_state.h"

namespace zero::standin {
namespace {

constexpr const char* kRecord = "record";

// Scrambles all bits of x.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Delay {
  int limit_us;
  uint64_t seed;
  void Pass(uint64_t stream, int64_t operation) const {
    if (limit_us <= 0) return;
    const uint64_t drawn = Mix(seed + Mix(stream + Mix(static_cast<uint64_t>(operation))));
    if (drawn % 4 != 0) return;  // most begin at once
    std::this_thread::sleep_for(
        std::chrono::microseconds((drawn >> 8) % (static_cast<uint64_t>(limit_us) + 1)));
  }
};

absl::Status Run(Operation& operation) {
  InsideOperation() = true;
  absl::Status status;
  try {
    if (operation.run) status = operation.run();
  } catch (const std::exception& error) {
    status = absl::InternalError(absl::StrCat("threw: ", error.what()));
  } catch (...) {
    status = absl::InternalError("threw");
  }
  InsideOperation() = false;
  return status;
}

absl::Status EndStatus(cudaError_t error) {
  return absl::InternalError(absl::StrCat("the device has ended with CUDA error ", error));
}

// Runs the operation, unless the device has ended.
void RunOrSkip(int device, DeviceBooks& books, Operation& operation) {
  const cudaError_t ended = Ended(device);
  if (ended != cudaSuccess) {
    if (operation.skip) operation.skip(EndStatus(ended));
    return;
  }
  const absl::Status status = Run(operation);
  if (!status.ok()) {
    End(device, cudaErrorLaunchFailure, absl::StrCat(operation.name, ": ", status.ToString()));
  }
  if (books.operations_left.load(std::memory_order_relaxed) > 0 &&
      books.operations_left.fetch_sub(1, std::memory_order_relaxed) == 1) {
    End(device, books.planned_end, absl::StrCat("planned, after ", operation.name));
  }
}

std::unique_ptr<StreamBooks> NewStream(State& state, int device) {
  auto books = std::make_unique<StreamBooks>();
  books->device = device;
  books->number = state.next_number++;
  return books;
}

// Threads are started without the lock.
cudaError_t Start(StreamBooks& stream) {
  Scheduler* const scheduler = Books().options.scheduler;
  const std::string name = absl::StrCat("gpu", stream.device, "-", stream.number);
  try {
    stream.queue =
        (scheduler != nullptr ? scheduler : &Books().threads)->CreateQueue(name, nullptr);
  } catch (const std::exception&) {
    return cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}

bool Drained(const StreamBooks& stream) {
  return stream.done.load(std::memory_order_relaxed) ==
         stream.pushed.load(std::memory_order_relaxed);
}

// Whether anything is enqueued or running that an event recorded last does not stand for.
bool Working(const StreamBooks& stream) {
  return stream.begun.load(std::memory_order_relaxed) !=
             stream.pushed.load(std::memory_order_relaxed) ||
         stream.working.load(std::memory_order_relaxed);
}

cudaError_t NotReady() {
  if (Books().options.not_ready) Books().options.not_ready();
  return cudaErrorNotReady;
}

// Null, and a violation, for a handle that is none.
EventBooks* FindEvent(State& state, const char* function, cudaEvent_t event) {
  const auto found = state.events.find(reinterpret_cast<uintptr_t>(event));
  if (found != state.events.end()) return &found->second;
  state.violations.push_back(absl::StrCat(function, ": no such event, or destroyed"));
  return nullptr;
}

cudaError_t Record(cudaEvent_t event, StreamBooks* stream) {
  Operation record;
  record.name = kRecord;
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    EventBooks* const books = FindEvent(state, "cudaEventRecord", event);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    if (books->device != stream->device) {
      return state.Violation(absl::StrCat("cudaEventRecord: an event of device ", books->device,
                                          " in a stream of device ", stream->device),
                             cudaErrorInvalidResourceHandle);
    }
    state.points.push_back(std::make_unique<RecordedPoint>());
    books->point = state.points.back().get();
    const auto reach = [point = books->point] {
      {
        const std::lock_guard<std::mutex> held(point->mutex);
        point->reached = true;
      }
      point->changed.notify_all();
    };
    record.skip = [reach](const absl::Status&) { reach(); };
    record.run = [reach] {
      reach();
      return absl::OkStatus();
    };
  }
  Push(stream, std::move(record));
  return cudaSuccess;
}

cudaError_t WaitFor(StreamBooks* stream, cudaEvent_t event) {
  Operation wait;
  wait.name = "wait";
  {
    State& state = Books();
    const QuietLock lock(state.mutex);
    const EventBooks* const books = FindEvent(state, "cudaStreamWaitEvent", event);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    if (books->point == nullptr) {
      return state.Violation("cudaStreamWaitEvent: the event was never recorded",
                             cudaErrorInvalidValue);
    }
    wait.gate = std::shared_ptr<Gate>(std::shared_ptr<void>(), books->point);  // owns nothing
    wait.ready = [point = books->point] { return point->reached; };
    wait.wait_if_skipped = true;
  }
  Push(stream, std::move(wait));
  return cudaSuccess;
}

}  // namespace

StreamBooks* FindStream(const char* function, cudaStream_t stream) {
  State& state = Books();
  std::unique_ptr<StreamBooks> made;
  const int current = CurrentDevice();
  {
    const QuietLock lock(state.mutex);
    if (stream != nullptr && stream != cudaStreamLegacy) {
      const auto found = state.streams.find(reinterpret_cast<uintptr_t>(stream));
      if (found != state.streams.end()) return found->second.get();
      state.violations.push_back(absl::StrCat(function, ": no such stream, or destroyed"));
      return nullptr;
    }
    const auto found = state.default_streams.find(current);
    if (found != state.default_streams.end()) return found->second.get();
    made = NewStream(state, current);
  }
  if (Start(*made) != cudaSuccess) return nullptr;
  const QuietLock lock(state.mutex);
  return state.default_streams.emplace(current, std::move(made)).first->second.get();
}

void Push(StreamBooks* stream, Operation operation) {
  State& state = Books();
  DeviceBooks* const device = state.device(stream->device);
  Delay delay;
  {
    const QuietLock lock(state.mutex);
    delay = {state.options.delay_us, state.options.seed};
    if (operation.gate.use_count() > 0) {
      // Those that are gone make room.
      if (device->gates.size() > 64) {
        std::erase_if(device->gates, [](const auto& gate) { return gate.expired(); });
      }
      device->gates.insert(operation.gate);
    }
  }
  Operation pushed;
  pushed.name = operation.name;
  pushed.gate = std::move(operation.gate);  // moved: see HostEvent::NewPoint
  pushed.deadline = operation.deadline;
  pushed.cost_us = operation.cost_us;
  if (operation.ready) {
    pushed.ready = [ready = std::move(operation.ready), id = stream->device,
                    always = operation.wait_if_skipped]() mutable {
      return (!always && Ended(id) != cudaSuccess) || ready();
    };
  }
  if (operation.expire) {
    pushed.expire = std::move(operation.expire);
  }
  const int64_t number = stream->pushed.fetch_add(1, std::memory_order_relaxed);
  // The stream's books live as long as its queue.
  pushed.run = [stream, device, delay, number, operation = std::move(operation)]() mutable {
    stream->working.store(operation.name != kRecord, std::memory_order_relaxed);
    stream->begun.fetch_add(1, std::memory_order_relaxed);
    delay.Pass(stream->number, number);
    RunOrSkip(stream->device, *device, operation);
    operation = Operation();
    stream->working.store(false, std::memory_order_relaxed);
    stream->done.fetch_add(1, std::memory_order_release);
    return absl::OkStatus();
  };
  stream->queue->Push(std::move(pushed));
}

cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::function<void()> body) {
  return Call("cudaLaunchKernel", [&] {
    StreamBooks* const books = FindStream("cudaLaunchKernel", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    if (books->device != CurrentDevice()) {
      State& state = Books();
      const QuietLock lock(state.mutex);
      return state.Violation(
          absl::StrCat("launch of ", name, ": in a stream of device ", books->device,
                       " while device ", CurrentDevice(), " is current"),
          cudaErrorInvalidResourceHandle);
    }
    if (Ended(books->device) != cudaSuccess) return Ended(books->device);
    Operation kernel;
    kernel.name = name;
    kernel.run = [body = std::move(body)] {
      body();
      return absl::OkStatus();
    };
    Push(books, std::move(kernel));
    return cudaSuccess;
  });
}

cudaError_t EnqueueOperation(cudaStream_t stream, Operation operation) {
  StreamBooks* const books = FindStream("EnqueueOperation", stream);
  if (books == nullptr) return cudaErrorInvalidResourceHandle;
  const cudaError_t ended = Ended(books->device);
  if (ended != cudaSuccess) return ended;
  Push(books, std::move(operation));
  return cudaSuccess;
}

}  // namespace zero::standin

using zero::standin::Books;
using zero::standin::Call;
using zero::standin::CurrentDevice;
using zero::standin::Ended;
using zero::standin::EventBooks;
using zero::standin::FindStream;
using zero::standin::QuietLock;
using zero::standin::RecordedPoint;
using zero::standin::Release;
using zero::standin::State;
using zero::standin::StreamBooks;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  return Call("cudaStreamCreateWithFlags", [&] {
    if (Ended(CurrentDevice()) != cudaSuccess) return Ended(CurrentDevice());
    State& state = Books();
    std::unique_ptr<StreamBooks> books;
    {
      const QuietLock lock(state.mutex);
      books = zero::standin::NewStream(state, CurrentDevice());
    }
    const cudaError_t started = zero::standin::Start(*books);
    if (started != cudaSuccess) return started;
    const QuietLock lock(state.mutex);
    state.next_handle += 16;
    *stream = reinterpret_cast<cudaStream_t>(state.next_handle);
    state.streams[state.next_handle] = std::move(books);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Release("cudaStreamDestroy", [&] {
    std::unique_ptr<StreamBooks> books;
    {
      State& state = Books();
      const QuietLock lock(state.mutex);
      const auto found = state.streams.find(reinterpret_cast<uintptr_t>(stream));
      if (found == state.streams.end()) {
        return state.Violation("cudaStreamDestroy: no such stream, or destroyed",
                               cudaErrorInvalidResourceHandle);
      }
      if (zero::standin::Working(*found->second)) {
        state.violations.push_back("cudaStreamDestroy: work of the stream is not over");
      }
      books = std::move(found->second);
      state.streams.erase(found);
    }
    const int device = books->device;
    books.reset();
    return Ended(device);
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return Call("cudaStreamGetDevice", [&] {
    StreamBooks* const books = FindStream("cudaStreamGetDevice", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    *device = books->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Call("cudaStreamQuery", [&] {
    StreamBooks* const books = FindStream("cudaStreamQuery", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    if (!zero::standin::Drained(*books)) return zero::standin::NotReady();
    const cudaError_t ended = Ended(books->device);
    // Nothing else can be asked about a device that has ended, so that this orders too.
    if (ended != cudaSuccess) (void)books->done.load(std::memory_order_acquire);
    return ended;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return Call("cudaStreamWaitEvent", [&] {
    StreamBooks* const books = FindStream("cudaStreamWaitEvent", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t ended = Ended(books->device);
    return ended != cudaSuccess ? ended : zero::standin::WaitFor(books, event);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Call("cudaLaunchHostFunc", [&] {
    StreamBooks* const books = FindStream("cudaLaunchHostFunc", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t ended = Ended(books->device);
    if (ended != cudaSuccess) return ended;
    zero::Operation call;
    call.name = "host function";
    call.run = [function, data] {
      function(data);
      return absl::OkStatus();
    };
    zero::standin::Push(books, std::move(call));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  return Call("cudaEventCreateWithFlags", [&] {
    if (Ended(CurrentDevice()) != cudaSuccess) return Ended(CurrentDevice());
    State& state = Books();
    const QuietLock lock(state.mutex);
    state.next_handle += 16;
    *event = reinterpret_cast<cudaEvent_t>(state.next_handle);
    state.events[state.next_handle].device = CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Release("cudaEventDestroy", [&] {
    State& state = Books();
    const QuietLock lock(state.mutex);
    const EventBooks* const books = zero::standin::FindEvent(state, "cudaEventDestroy", event);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const int device = books->device;
    state.events.erase(reinterpret_cast<uintptr_t>(event));
    return Ended(device);
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call("cudaEventRecord", [&] {
    StreamBooks* const books = FindStream("cudaEventRecord", stream);
    if (books == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t ended = Ended(books->device);
    return ended != cudaSuccess ? ended : zero::standin::Record(event, books);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call("cudaEventQuery", [&] {
    RecordedPoint* point = nullptr;
    int device = 0;
    {
      State& state = Books();
      const QuietLock lock(state.mutex);
      const EventBooks* const books = zero::standin::FindEvent(state, "cudaEventQuery", event);
      if (books == nullptr) return cudaErrorInvalidResourceHandle;
      if (books->point == nullptr) {
        return state.Violation("cudaEventQuery: the event was never recorded",
                               cudaErrorInvalidResourceHandle);
      }
      point = books->point;
      device = books->device;
    }
    // Seen, if it was reached, as what orders this thread after the stream.
    bool reached = false;
    {
      const std::lock_guard<std::mutex> lock(point->mutex);
      reached = point->reached;
    }
    return reached ? Ended(device) : zero::standin::NotReady();
  });
}

}  // extern "C"
