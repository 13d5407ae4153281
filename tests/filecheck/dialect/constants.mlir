// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

%dense = pebble.constant dense<[[0.5, 1.0], [-2.0, 0.25]]> : tensor<2x2xf32>
%splat = pebble.constant dense<1.0> : tensor<3xf32>
%scalar = pebble.constant dense<-0.0> : tensor<f32>
%empty = pebble.constant dense<> : tensor<0x4xf32>
%named = pebble.constant {pebble.values = ["fc1.bias"]} dense<[0.5, 1.0]> : tensor<2xf32>
%sparse = pebble.sparse_constant pointers dense<[0, 2, 3]> : tensor<3xi64> rows dense<[0, 2, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> {pebble.values = ["fc1.weight"]} : tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>
%none = pebble.sparse_constant pointers dense<0> : tensor<3xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 0>>
%codes = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.5> : tensor<1xf32> few_bits <4 bits, groups of 32, accuracy 4, scales dense<"0x0000003F"> : tensor<1xf32>, zeros dense<> : tensor<0xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>
%whole = pebble.constant {few_bits = #pebble.few_bits<4 bits, groups of 32, accuracy 4, scales dense<"0x0000003F"> : tensor<1xf32>, zeros dense<> : tensor<0xi16>>} dense<[[1.5], [-4.0]]> : tensor<2x1xf32>

// CHECK:      builtin.module {
// CHECK-NEXT:   %dense = pebble.constant dense<{{\[\[}}5.000000e-01, 1.000000e+00], [-2.000000e+00, 2.500000e-01]]> : tensor<2x2xf32>
// CHECK-NEXT:   %splat = pebble.constant dense<1.000000e+00> : tensor<3xf32>
// CHECK-NEXT:   %scalar = pebble.constant dense<-0.000000e+00> : tensor<f32>
// CHECK-NEXT:   %empty = pebble.constant dense<> : tensor<0x4xf32>
// CHECK-NEXT:   %named = pebble.constant {pebble.values = ["fc1.bias"]} dense<[5.000000e-01, 1.000000e+00]> : tensor<2xf32>
// CHECK-NEXT:   %sparse = pebble.sparse_constant pointers dense<[0, 2, 3]> : tensor<3xi64> rows dense<[0, 2, 1]> : tensor<3xi64> values dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32> {pebble.values = ["fc1.weight"]} : tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>
// CHECK-NEXT:   %none = pebble.sparse_constant pointers dense<0> : tensor<3xi64> rows dense<> : tensor<0xi64> values dense<> : tensor<0xf32> : tensor<4x2xf32, #pebble.sparsity<nonzeros = 0>>
// CHECK-NEXT:   %codes = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<1.500000e+00> : tensor<1xf32> few_bits <4 bits, groups of 32, accuracy 4, scales dense<"0x0000003F"> : tensor<1xf32>, zeros dense<> : tensor<0xi16>> : tensor<4x1xf32, #pebble.sparsity<nonzeros = 1>>
// CHECK-NEXT:   %whole = pebble.constant {few_bits = #pebble.few_bits<4 bits, groups of 32, accuracy 4, scales dense<"0x0000003F"> : tensor<1xf32>, zeros dense<> : tensor<0xi16>>} dense<{{\[\[}}1.500000e+00], [-4.000000e+00]]> : tensor<2x1xf32>
// CHECK-NEXT: }

// GENERIC: %named = "pebble.constant"() <{value = dense<[5.000000e-01, 1.000000e+00]> : tensor<2xf32>}> {pebble.values = ["fc1.bias"]} : () -> tensor<2xf32>
// GENERIC: %sparse = "pebble.sparse_constant"() <{pointers = dense<[0, 2, 3]> : tensor<3xi64>, rows = dense<[0, 2, 1]> : tensor<3xi64>, values = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32>}> {pebble.values = ["fc1.weight"]} : () -> tensor<4x2xf32, #pebble.sparsity<nonzeros = 3>>
