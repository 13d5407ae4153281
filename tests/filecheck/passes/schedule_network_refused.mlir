// RUN: xdsl-opt %s -p 'pebble-schedule-network{l1_bytes=8 l2_bytes=4}' --verify-diagnostics | filecheck %s

// CHECK: pebble-schedule-network: caches of 8, 4 bytes, expected ascending positive sizes
func.func @main(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  func.return %x : tensor<?x1xf32>
}
