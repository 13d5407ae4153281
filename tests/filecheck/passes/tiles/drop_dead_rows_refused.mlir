// RUN: xdsl-opt %s -p 'pebble-drop-dead-rows{l2_bytes=0}' --verify-diagnostics | filecheck %s

// CHECK: pebble-drop-dead-rows: expected l2_bytes of 1 or more, got 0
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  func.return %x : tensor<?x2xf32>
}
