#include "zero/offload/offload_report.h"

namespace zero {
namespace {

template <class Combine>
void Each(OffloadReport& a, const OffloadReport& b, const Combine& combine) {
  combine(a.optimizer, b.optimizer);
  combine(a.await_gradients, b.await_gradients);
  combine(a.await_piece, b.await_piece);
  combine(a.await_weights, b.await_weights);
  combine(a.await_gradient_slot, b.await_gradient_slot);
  combine(a.disk_read, b.disk_read);
  combine(a.disk_write, b.disk_write);
  combine(a.bytes_to_device, b.bytes_to_device);
  combine(a.bytes_from_device, b.bytes_from_device);
  combine(a.bytes_read, b.bytes_read);
  combine(a.bytes_written, b.bytes_written);
}

}  // namespace

OffloadReport& OffloadReport::operator+=(const OffloadReport& other) {
  Each(*this, other, [](auto& a, auto b) { a += b; });
  return *this;
}

OffloadReport& OffloadReport::operator-=(const OffloadReport& other) {
  Each(*this, other, [](auto& a, auto b) { a -= b; });
  return *this;
}

}  // namespace zero
