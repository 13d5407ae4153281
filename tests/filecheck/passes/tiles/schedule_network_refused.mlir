// RUN: xdsl-opt %s -p 'pebble-schedule-network{l1_bytes=8 l2_bytes=4}' --verify-diagnostics | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-schedule-network{seconds=-1.0}' --verify-diagnostics | filecheck %s --check-prefix=TIME

// CHECK: pebble-schedule-network: expected ascending positive sizes of caches, got 8, 4 bytes
// TIME: pebble-schedule-network: expected a search of 0 seconds or more, got -1.0
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
