// RUN: xdsl-opt %s -p pebble-fuse-aggregations | filecheck %s

// a scale per feature is no scale per node; a node without edges divided by 0 is NaN; a maximum is not linear
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %a = pebble.sparse_constant pointers dense<[0, 1, 1]> : tensor<3xi64> rows dense<[1]> : tensor<1xi64> values dense<[2.0]> : tensor<1xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>
  %features = pebble.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %degree = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.aggregate
  // CHECK-NEXT: %p = pebble.mul
  %s = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<2x2xf32>
  %p = pebble.mul %s, %features : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  // CHECK-NEXT: pebble.aggregate
  // CHECK-NEXT: %q = pebble.div
  %t = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<2x2xf32>
  %q = pebble.div %t, %degree : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
  // CHECK-NEXT: pebble.aggregate %x, %a maximum
  // CHECK-NEXT: %r = pebble.add
  %u = pebble.aggregate %x, %a maximum : (tensor<2x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<2x2xf32>
  %r = pebble.add %u, %x : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %p, %q, %r : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}
