// A lock that ThreadSanitizer does not see.
#pragma once

#include <mutex>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace zero::standin {

// For the books of a stand-in, which every stream and every rank's thread looks up: an ordinary
// lock would put all of them in an order by chance, and ThreadSanitizer would miss what the tested
// code forgot. While it is held, memory accesses are not recorded either.
class QuietLock {
 public:
  explicit QuietLock(std::mutex& mutex) : mutex_(mutex) {
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    mutex_.lock();
  }
  ~QuietLock() {
    mutex_.unlock();
#if defined(__SANITIZE_THREAD__)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
  }
  QuietLock(const QuietLock&) = delete;
  QuietLock& operator=(const QuietLock&) = delete;

 private:
  std::mutex& mutex_;
};

}  // namespace zero::standin
