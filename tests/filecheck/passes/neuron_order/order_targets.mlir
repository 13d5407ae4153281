// RUN: xdsl-opt %s -p pebble-order-targets{l2_bytes=32} | filecheck %s

// Pairs of nodes apart from each other: half of the cache holds four values.
// CHECK-LABEL: @pairs
func.func @pairs(%x: tensor<10x1xf32>) -> tensor<10x1xf32> {
  %g = pebble.sparse_constant pointers dense<[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]> : tensor<11xi64> rows dense<[0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 0, 5, 1, 6, 2, 7, 3, 8, 4, 9]> : tensor<20xi64> values dense<1.0> : tensor<20xf32> : tensor<10x10xf32, #pebble.sparsity<nonzeros = 20>>
  // CHECK: pebble.aggregate %x, %g walk <near, anew = 5.000000e-01, otherwise = 1.000000e+00>
  %y = pebble.aggregate %x, %g : (tensor<10x1xf32>, tensor<10x10xf32, #pebble.sparsity<nonzeros = 20>>) -> tensor<10x1xf32>
  func.return %y : tensor<10x1xf32>
}
