#include "io/worker.h"

#include <future>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace zero {
namespace {

TEST_CASE("Worker: jobs are done in order on another thread", "[thread]") {
  std::vector<int> done;
  std::thread::id thread;
  {
    Worker worker;
    for (int i = 0; i < 100; ++i) {
      worker.Add([&, i] {
        done.push_back(i);
        thread = std::this_thread::get_id();
        return absl::OkStatus();
      });
    }
    CHECK_OK(worker.Wait());
    CHECK(done.size() == 100);
    CHECK(thread != std::this_thread::get_id());
    worker.Add([&] {
      done.push_back(100);
      return absl::OkStatus();
    });
  }
  // What was added before the end has been done.
  REQUIRE(done.size() == 101);
  for (int i = 0; i <= 100; ++i) CHECK(done[static_cast<size_t>(i)] == i);
}

TEST_CASE("Worker: Wait returns when so many jobs are left", "[thread]") {
  std::promise<void> go;
  std::shared_future<void> gate(go.get_future());
  Worker worker;
  CHECK_OK(worker.Wait());
  int done = 0;
  for (int i = 0; i < 3; ++i) {
    worker.Add([&, i] {
      if (i > 0) gate.wait();
      ++done;
      return absl::OkStatus();
    });
  }
  CHECK_OK(worker.Wait(2));
  go.set_value();
  CHECK_OK(worker.Wait());
  CHECK(done == 3);
}

TEST_CASE("Worker: the first error is returned once and later jobs are done", "[thread]") {
  Worker worker;
  int done = 0;
  for (const char* error : {"", "first", "second", ""}) {
    worker.Add([&, error] {
      ++done;
      return *error == '\0' ? absl::OkStatus() : absl::DataLossError(error);
    });
  }
  CHECK(worker.Wait() == absl::DataLossError("first"));
  CHECK(done == 4);
  CHECK_OK(worker.Wait());
}

}  // namespace
}  // namespace zero
