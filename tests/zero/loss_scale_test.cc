// Loss scaling, skipped steps and the rules that stop a run, through the verbs.
#include <cmath>
#include <limits>

#include "collectives/local_group.h"
#include "tests/zero/rank_fixture.h"

namespace zero::test {
namespace {

