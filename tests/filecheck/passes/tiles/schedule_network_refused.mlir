// RUN: xdsl-opt %s -p 'pebble-schedule-network{l1_bytes=8 l2_bytes=4}' --verify-diagnostics | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-schedule-network{seconds=-1.0}' --verify-diagnostics | filecheck %s --check-prefix=TIME

// CHECK: pebble-schedule-network: caches of 8, 4 bytes, expected ascending positive sizes
// TIME: pebble-schedule-network: a search of -1.0 seconds, accepted are 0 and more
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
