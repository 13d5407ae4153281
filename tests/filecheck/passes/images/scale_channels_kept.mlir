// RUN: xdsl-opt %s -p pebble-scale-channels | filecheck %s

// no layer on images is beside it: it may be anything
func.func @main(%x: tensor<?x2x8x8xf32>) -> tensor<?x2x8x8xf32> {
  %g = pebble.constant dense<[2.0, 3.0]> : tensor<2xf32>
  // CHECK: pebble.batch_norm
  %n = pebble.batch_norm %x scale %g bias %g mean %g variance %g epsilon 0.0 : (tensor<?x2x8x8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x8x8xf32>
  func.return %n : tensor<?x2x8x8xf32>
}
