// What xDSL's numbers cannot say stands there as bytes: NaN, infinities, zeros of both signs, 1000001.
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s

%special = pebble.constant dense<"0x0000C07F0000807F000080FF00000080"> : tensor<4xf32>
%zeros = pebble.constant dense<"0x0000000000000080"> : tensor<2xf32>
%long = pebble.constant dense<1000001.0> : tensor<2xf32>
%one = pebble.constant dense<"0x0000803F00000040"> : tensor<2xf32>
%sparse = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<"0x0000C07F"> : tensor<1xf32> : tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>

// CHECK:      %special = pebble.constant dense<"0x0000C07F0000807F000080FF00000080"> : tensor<4xf32>
// CHECK-NEXT: %zeros = pebble.constant dense<"0x0000000000000080"> : tensor<2xf32>
// CHECK-NEXT: %long = pebble.constant dense<"0x1024744910247449"> : tensor<2xf32>
// CHECK-NEXT: %one = pebble.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: %sparse = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<"0x0000C07F"> : tensor<1xf32> : tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>
